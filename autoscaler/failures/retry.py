"""Whether a job whose script failed is started again, and when.

Lost instances, reclaims and drains never come here: they are no failures of the script and cost
it none of its retries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from autoscaler.domain.report import Failure, FailureReason

FIRST_DELAY_SECONDS: Final = 2.0
LONGEST_DELAY_SECONDS: Final = 300.0
PROGRESS_STEPS: Final = 1000


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Whether to start the script again, after how long, and why or why not, in one line."""

    retry: bool
    delay_seconds: float
    reason: str


def next_attempt(history: Sequence[Failure], retries: int, first_steps: int = 5) -> RetryDecision:
    """Decide after the last failure of `history`.

    - At most `retries` failures in a row are followed by another start, the first after 2 s and
      each further one after twice as long, up to 5 min.
    - A failure that comes back, with an equal signature, within the first steps of the next
      start is the script's own: it is not tried a third time. Memory that runs out again is not
      the same failure while the next start takes fewer examples at once on a device.
    - A failed setup is tried once more, not oftener.
    - Training that diverged is not tried again: from the last checkpoint the same steps follow.
      Its owner resumes it with other settings.
    - Training whose examples do not fit a device one by one is not tried again.
    - A failure of a new kind after at least `PROGRESS_STEPS` steps opens a new count: the start
      before it did what it was for. One that was seen before does not, or a job that always dies
      at the same step would be paid for for ever.

    Args:
        history: all failures of the job, the oldest first. Those of one attempt, on several
            instances, follow each other and count once.
        retries: how many times the owner lets a failing script be started again.
        first_steps: steps of a start that count as its first.

    Raises:
        ValueError: `history` is empty.
    """
    if not history:
        raise ValueError("history is empty: there is no failure to decide about")
    attempts = [_Attempt(tuple(group)) for _, group in groupby(history, lambda f: f.attempt)]
    counted = _counted(attempts)
    cause = attempts[-1].cause
    refusal = _refusal(attempts[-2:], counted, retries, first_steps)
    if refusal is not None:
        return RetryDecision(False, 0.0, f"{refusal}: {cause}")
    number = len(counted)
    delay_seconds = min(FIRST_DELAY_SECONDS * 2.0 ** min(number - 1, 30), LONGEST_DELAY_SECONDS)
    reason = f"retry {number} of {retries} in {delay_seconds:.0f} s: {cause}"
    return RetryDecision(True, delay_seconds, reason)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The failures of one attempt, on one instance or several."""

    failures: tuple[Failure, ...]

    @property
    def is_setup(self) -> bool:
        return all(failure.during_setup for failure in self.failures)

    def has_reason(self, reason: FailureReason) -> bool:
        return any(failure.reason is reason for failure in self.failures)

    def takes_less_than(self, before: _Attempt) -> bool:
        """Whether the next start takes fewer examples at once on a device than before."""
        known = dict(before._limits)
        return any(most < known.get(kind, math.inf) for kind, most in self._limits)

    @property
    def _limits(self) -> list[tuple[str, int]]:
        return [each.device_limit for each in self.failures if each.device_limit is not None]

    @property
    def cause(self) -> str:
        return (
            f"setup failed: {self.failures[0].cause}" if self.is_setup else self.failures[0].cause
        )

    @property
    def steps(self) -> int:
        return max(failure.steps for failure in self.failures)

    def signatures(self, most_steps: float = math.inf) -> frozenset[str]:
        return frozenset(f.signature for f in self.failures if f.steps <= most_steps)


def _counted(attempts: Sequence[_Attempt]) -> list[_Attempt]:
    """The attempts since the last one that made progress and then failed in a new way."""
    counted: list[_Attempt] = []
    seen: set[str] = set()
    for attempt in attempts:
        if attempt.steps >= PROGRESS_STEPS and seen.isdisjoint(attempt.signatures()):
            counted = []
        counted.append(attempt)
        seen |= attempt.signatures()
    return counted


def _refusal(
    newest: Sequence[_Attempt], counted: Sequence[_Attempt], retries: int, first_steps: int
) -> str | None:
    """Why there is no retry, if so; `newest` are the last attempt and the one before it."""
    last = newest[-1]
    if last.has_reason(FailureReason.DIVERGED):
        return "not retried, it would diverge again"
    if last.has_reason(FailureReason.OUT_OF_MEMORY):
        return "not retried, the same examples would not fit again"
    if last.is_setup and sum(attempt.is_setup for attempt in counted) > 1:
        return "not retried, setup is tried twice at most"
    early = last.signatures(most_steps=first_steps)
    is_same = len(newest) > 1 and not early.isdisjoint(newest[0].signatures())
    if is_same and not last.takes_less_than(newest[0]):
        return f"not retried, the same failure came back within {first_steps} steps"
    if len(counted) > retries:
        return _used_up(retries)
    return None


def _used_up(retries: int) -> str:
    """Return the refusal of a retry where the owner allows no more of them."""
    if retries == 0:
        return "not retried, `retries` allows none"
    retried = "1 retry" if retries == 1 else f"{retries} retries"
    return f"failed after {retried}, all that `retries` allows"
