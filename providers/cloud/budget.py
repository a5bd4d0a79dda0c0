"""How many calls may be made: a token bucket for each region and action, as clouds have them.

They count by account, region and action, and refuse what is beyond. Staying below leaves room for
whatever else the account runs.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.clock import Clock
from autoscaler.domain.errors import Throttled


@dataclass(frozen=True, slots=True)
class Rate:
    """A bucket holds `burst` tokens and gets `per_second` more."""

    burst: float
    per_second: float


class CallBudget:
    """The buckets. Safe to share between threads.

    `rates` are those of actions, `usual` that of all others.
    """

    def __init__(
        self,
        clock: Clock,
        rates: Mapping[str, Rate],
        usual: Rate,
        longest_wait_seconds: float = 10.0,
    ) -> None:
        self._clock = clock
        self._rates = rates
        self._usual = usual
        self._longest_wait_seconds = longest_wait_seconds
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._lock = threading.Lock()

    def wait(self, region: str, action: str) -> None:
        """Take a token, after a short wait if need be.

        Raises:
            Throttled: it would be a long one.
        """
        wait_seconds = self._reserve(region, action, self._longest_wait_seconds)
        if wait_seconds > 0:
            self._clock.sleep(wait_seconds)

    def take(self, region: str, action: str) -> None:
        """Take a token that is there now.

        Raises:
            Throttled: there is none.
        """
        self._reserve(region, action, 0.0)

    def was_throttled(self, region: str, action: str) -> None:
        """The cloud has said so: others use the same bucket, and it is empty."""
        with self._lock:
            self._bucket(region, action).empty(self._clock.monotonic())

    def limit(self, region: str, action: str, rate: Rate) -> None:
        """Bound an action by a rate of the owner's."""
        with self._lock:
            self._buckets[region, action] = _Bucket(rate, self._clock.monotonic())

    def _reserve(self, region: str, action: str, longest_seconds: float) -> float:
        with self._lock:
            bucket = self._bucket(region, action)
            wait_seconds = bucket.wait_seconds(self._clock.monotonic())
            if wait_seconds > longest_seconds:
                raise Throttled(
                    f"{region}: {action}: as often as is good for now; again in "
                    f"{wait_seconds:.1f} s",
                    wait_seconds,
                )
            bucket.tokens -= 1
            return wait_seconds

    def _bucket(self, region: str, action: str) -> _Bucket:
        key = (region, action)
        if key not in self._buckets:
            rate = self._rates.get(action, self._usual)
            self._buckets[key] = _Bucket(rate, self._clock.monotonic())
        return self._buckets[key]


class _Bucket:
    """Tokens may be owed: who waits has theirs already."""

    def __init__(self, rate: Rate, now_seconds: float) -> None:
        self._rate = rate
        self._filled_seconds = now_seconds
        self.tokens = rate.burst

    def wait_seconds(self, now_seconds: float) -> float:
        """How long until one more can be had."""
        gained = (now_seconds - self._filled_seconds) * self._rate.per_second
        self.tokens = min(self.tokens + gained, self._rate.burst)
        self._filled_seconds = now_seconds
        return max(1.0 - self.tokens, 0.0) / self._rate.per_second

    def empty(self, now_seconds: float) -> None:
        """Nothing is left."""
        self.wait_seconds(now_seconds)
        self.tokens = min(self.tokens, 0.0)
