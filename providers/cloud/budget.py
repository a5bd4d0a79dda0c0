"""Client-side rate limits of API calls: a token bucket for each region and action.

Clouds count calls by account, region and action, and refuse calls above their rate. Calling at a
lower rate leaves room for other users of the account.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.clock import Clock
from autoscaler.domain.errors import Throttled


@dataclass(frozen=True, slots=True)
class Rate:
    """Capacity of a token bucket (`burst`, in calls) and its refill rate (`per_second`)."""

    burst: float
    per_second: float


class CallRateLimiter:
    """Token buckets by region and action. Thread-safe.

    `rates` maps an action to its rate; `usual` applies to all other actions. `wait` sleeps for at
    most `longest_wait_seconds`.
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
        """Take a token; sleep if the bucket is empty.

        Raises:
            Throttled: the sleep would exceed `longest_wait_seconds`.
        """
        wait_seconds = self._reserve(region, action, self._longest_wait_seconds)
        if wait_seconds > 0:
            self._clock.sleep(wait_seconds)

    def take(self, region: str, action: str) -> None:
        """Take a token without waiting.

        Raises:
            Throttled: the bucket is empty.
        """
        self._reserve(region, action, 0.0)

    def was_throttled(self, region: str, action: str) -> None:
        """Empty a bucket after the cloud throttled a call: other users drain the same bucket."""
        with self._lock:
            self._bucket(region, action).empty(self._clock.monotonic())

    def limit(self, region: str, action: str, rate: Rate) -> None:
        """Set the rate of an action in one region, with a full bucket."""
        with self._lock:
            self._buckets[region, action] = _Bucket(rate, self._clock.monotonic())

    def _reserve(self, region: str, action: str, longest_seconds: float) -> float:
        with self._lock:
            bucket = self._bucket(region, action)
            wait_seconds = bucket.wait_seconds(self._clock.monotonic())
            if wait_seconds > longest_seconds:
                raise Throttled(
                    f"{region}: {action}: call rate limit reached; retry in {wait_seconds:.1f} s",
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
    """Token bucket. `tokens` is negative while callers sleep for tokens they have reserved."""

    def __init__(self, rate: Rate, now_seconds: float) -> None:
        self._rate = rate
        self._filled_seconds = now_seconds
        self.tokens = rate.burst

    def wait_seconds(self, now_seconds: float) -> float:
        """Refill the bucket and return the seconds until it holds a whole token."""
        gained = (now_seconds - self._filled_seconds) * self._rate.per_second
        self.tokens = min(self.tokens + gained, self._rate.burst)
        self._filled_seconds = now_seconds
        return max(1.0 - self.tokens, 0.0) / self._rate.per_second

    def empty(self, now_seconds: float) -> None:
        """Remove all tokens; reserved ones stay owed."""
        self.wait_seconds(now_seconds)
        self.tokens = min(self.tokens, 0.0)
