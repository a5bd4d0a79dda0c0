"""Retries of a job whose script failed.

Lost instances, reclaims and drains are not failures of the script and use up no retries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from typing import Final

from autoscaler.domain.report import Failure, FailureCategory, FailureReason
from autoscaler.failures.consequences import CONSEQUENCES, Consequence, Retry, main_category

FIRST_DELAY_SECONDS: Final = 2.0
LONGEST_DELAY_SECONDS: Final = 300.0
PROGRESS_STEPS: Final = 1000
LIFETIME_STARTS: Final = 10
"""Failed starts in a job's life, for each start that `retries` allows in one count."""


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Whether to start the script again, and after how many seconds.

    `outcome` is the decision in words, and `cause` describes the last failure; both on one line.
    """

    retry: bool
    delay_seconds: float
    outcome: str
    cause: str

    @property
    def reason(self) -> str:
        """The decision and the failure on one line."""
        return f"{self.outcome}: {self.cause}"


def next_attempt(history: Sequence[Failure], retries: int, first_steps: int = 5) -> RetryDecision:
    """Decide whether to retry after the last failure of `history`.

    - At most `retries` consecutive failures are retried. The first delay is 2 s; each further one
      is twice as long, up to 5 min.
    - A failure with the same signature within the first steps of the next start is the script's
      fault and is not retried a second time. Running out of memory again does not count as the
      same failure if the next start processes fewer examples at once on a device.
    - A failed setup is retried once.
    - Diverged training is not retried: the same steps would follow from the last checkpoint. The
      owner may resume the job with other settings.
    - Training of which not even one example fits a device is not retried.
    - The category decides further (docs/failures.md): some are never retried, some once, and some
      may come back at once or are no failure of the job.
    - A job has at most `LIFETIME_STARTS` times as many failed starts in its life as in one count.
    - A failure of a new kind after at least `PROGRESS_STEPS` steps resets the count. A failure
      seen before does not, so that a job which always fails at the same step ends.

    Args:
        history: all failures of the job, oldest first. Failures of one attempt on several
            instances are adjacent and count once.
        retries: the retries that the owner allows.
        first_steps: the number of steps that count as the first steps of a start.

    Raises:
        ValueError: `history` is empty.
    """
    if not history:
        raise ValueError("history is empty: there is no failure to decide about")
    groups = groupby(history, lambda failure: failure.attempt)
    attempts = [_Attempt(tuple(failures)) for _, failures in groups]
    counted = _attempts_in_count(attempts)
    cause = attempts[-1].cause
    refusal = _refusal_reason(attempts[-2:], counted, retries, first_steps)
    if refusal is None and len(attempts) > LIFETIME_STARTS * (retries + 1):
        refusal = f"not retried, its script has failed {len(attempts)} times in all"
    if refusal is not None:
        return RetryDecision(False, 0.0, refusal, cause)
    number, last = len(counted), attempts[-1]
    repeats = max(number, _free_in_a_row(attempts))
    delay_seconds = min(FIRST_DELAY_SECONDS * 2.0 ** min(repeats - 1, 30), LONGEST_DELAY_SECONDS)
    outcome = f"retry {number} of {retries} in {delay_seconds:.0f} s"
    if last.consequence.is_free:
        outcome = f"started again in {delay_seconds:.0f} s, {last.consequence.words}"
    return RetryDecision(True, delay_seconds, outcome, cause)


def _free_in_a_row(attempts: Sequence[_Attempt]) -> int:
    """Return the number of the last attempts that failed for no fault of the job."""
    return sum(1 for _ in takewhile(lambda failed: failed.consequence.is_free, attempts[::-1]))


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Failures of one attempt, on one or several instances."""

    failures: tuple[Failure, ...]

    @property
    def category(self) -> FailureCategory:
        return main_category(tuple(failure.category for failure in self.failures))

    @property
    def consequence(self) -> Consequence:
        return CONSEQUENCES[self.category]

    @property
    def is_setup(self) -> bool:
        return all(failure.during_setup for failure in self.failures)

    def has_reason(self, reason: FailureReason) -> bool:
        return any(failure.reason is reason for failure in self.failures)

    def takes_less_than(self, before: _Attempt) -> bool:
        """Return whether the next start may use fewer examples at once on a device than before.

        Compares the limits that this attempt set with those that `before` set, by kind of device.
        """
        limits_before = dict(before._limits)
        return any(limit < limits_before.get(kind, math.inf) for kind, limit in self._limits)

    @property
    def _limits(self) -> list[tuple[str, int]]:
        return [
            failure.device_limit for failure in self.failures if failure.device_limit is not None
        ]

    @property
    def cause(self) -> str:
        main = next(failed for failed in self.failures if failed.category is self.category)
        return f"setup failed: {main.cause}" if self.is_setup else main.cause

    @property
    def steps(self) -> int:
        return max(failure.steps for failure in self.failures)

    def signatures(self, most_steps: float = math.inf) -> frozenset[str]:
        return frozenset(
            failure.signature for failure in self.failures if failure.steps <= most_steps
        )


def _attempts_in_count(attempts: Sequence[_Attempt]) -> list[_Attempt]:
    """Return the attempts since the last one that made progress and then failed in a new way.

    Attempts that failed for no fault of the job are left out.
    """
    counted: list[_Attempt] = []
    known_signatures: set[str] = set()
    for attempt in attempts:
        if attempt.steps >= PROGRESS_STEPS and known_signatures.isdisjoint(attempt.signatures()):
            counted = []
        if not attempt.consequence.is_free:
            counted.append(attempt)
        known_signatures |= attempt.signatures()
    return counted


def _refusal_reason(
    newest: Sequence[_Attempt], counted: Sequence[_Attempt], retries: int, first_steps: int
) -> str | None:
    """Return why the job is not retried; None if it is. `newest` are the last two attempts."""
    last = newest[-1]
    if last.has_reason(FailureReason.DIVERGED):
        return "not retried, it would diverge again"
    if last.has_reason(FailureReason.OUT_OF_MEMORY):
        return "not retried, the same examples would not fit again"
    if last.consequence.is_free:
        return None
    if last.is_setup and sum(attempt.is_setup for attempt in counted) > 1:
        return "not retried, setup is tried twice at most"
    if refusal := _refusal_of_category(last, counted):
        return refusal
    early_signatures = last.signatures(most_steps=first_steps)
    is_repeated = len(newest) > 1 and not early_signatures.isdisjoint(newest[0].signatures())
    may_repeat = last.consequence.is_transient or last.takes_less_than(newest[0])
    if is_repeated and not may_repeat:
        return f"not retried, the same failure came back within {first_steps} steps"
    if len(counted) > retries:
        return _retries_used_up(retries)
    return None


def _refusal_of_category(last: _Attempt, counted: Sequence[_Attempt]) -> str | None:
    """Return why the category of the last attempt forbids a retry; None if it allows one.

    A setup may fail for its network alone, so it is tried twice unless the code is wrong.
    """
    rule, category = last.consequence, last.category
    is_of_code = category is FailureCategory.SYNTAX
    if rule.retry is Retry.NEVER and (is_of_code or not last.is_setup):
        return f"not retried, {rule.words}"
    alike = takewhile(lambda attempt: attempt.category is category, reversed(counted))
    if rule.retry is Retry.ONCE and len(list(alike)) > 1:
        return f"not retried, a failure of this kind ({category}) is retried once in a row"
    return None


def _retries_used_up(retries: int) -> str:
    """Return the reason where the owner's retries are used up."""
    if retries == 0:
        return "not retried, `retries` allows none"
    retried = "1 retry" if retries == 1 else f"{retries} retries"
    return f"failed after {retried}, all that `retries` allows"
