"""Jumps of the wall clock, and ages of stored times that these jumps do not change.

Stored times are of the wall clock, because they outlive the process. A person or NTP may set that
clock at any moment. A suspended machine looks the same: its wall clock jumps forward.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from autoscaler.clock import Clock, is_waiting
from autoscaler.domain.job import JobRecord
from autoscaler.failures.retry import LONGEST_DELAY_SECONDS

JUMP_SECONDS: Final = 30.0
"""A smaller difference of the wall clock from the monotonic clock between two ticks is drift."""


def awaits_retry(job: JobRecord, now_seconds: float) -> bool:
    """Return whether the next start of a job's script is not due yet."""
    retry_seconds = job.retry_seconds
    if retry_seconds is None:
        return False
    return is_waiting(retry_seconds, now_seconds, LONGEST_DELAY_SECONDS)


class JumpDetector:
    """Comparison of the wall clock with the monotonic clock, tick by tick."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None

    def jumped_seconds(self, now_seconds: float, monotonic_seconds: float) -> float:
        """Return by how much the wall clock has jumped since the last call; 0 without a jump.

        Negative if the clock was set back.
        """
        before, self._before = self._before, (now_seconds, monotonic_seconds)
        if before is None:
            return 0.0
        passed_seconds = monotonic_seconds - before[1]
        difference_seconds = (now_seconds - before[0]) - passed_seconds
        return difference_seconds if abs(difference_seconds) > JUMP_SECONDS else 0.0


class SteadyTimes:
    """The present time as each stored time needs it: without the jumps since the first look at it.

    A stored time that is in the future at the first look was written before the clock was set back
    by another process; it counts as written now.
    """

    def __init__(self) -> None:
        self._jumps_seconds = 0.0
        self._corrections: dict[str, tuple[float, float]] = {}
        self._asked: set[str] = set()

    def add_jump(self, jumped_seconds: float) -> None:
        """Note a jump of the wall clock."""
        self._jumps_seconds += jumped_seconds

    def now_since(self, subject: str, stored_seconds: float, now_seconds: float) -> float:
        """Return the present time for a comparison with a stored time of a subject.

        Args:
            subject: what the time is of; each subject has one stored time.
            stored_seconds: the stored time, in seconds since the epoch.
            now_seconds: the present wall clock, which is returned unchanged without jumps.
        """
        self._asked.add(subject)
        known = self._corrections.get(subject)
        if known is None or known[0] != stored_seconds:
            is_future = stored_seconds > now_seconds + JUMP_SECONDS
            ahead_seconds = stored_seconds - now_seconds if is_future else 0.0
            known = stored_seconds, self._jumps_seconds + ahead_seconds
            self._corrections[subject] = known
        correction_seconds = self._jumps_seconds - known[1]
        return now_seconds - correction_seconds if correction_seconds else now_seconds

    def forget_unused(self) -> None:
        """Forget the first looks at times that nobody asked for since the last call."""
        self._corrections = {
            subject: known
            for subject, known in self._corrections.items()
            if subject in self._asked
        }
        self._asked.clear()


@dataclass(frozen=True, slots=True)
class LoopTime:
    """Clock of a control loop, the jumps of its wall clock, and times without these jumps."""

    clock: Clock
    jumps: JumpDetector = field(default_factory=JumpDetector)
    steady: SteadyTimes = field(default_factory=SteadyTimes)

    def monotonic(self) -> float:
        """Return the seconds of the monotonic clock, for timers of this process."""
        return self.clock.monotonic()

    def begin_tick(self, now_seconds: float) -> float:
        """Return by how much the wall clock has jumped since the last tick; 0 without a jump."""
        jumped_seconds = self.jumps.jumped_seconds(now_seconds, self.monotonic())
        if jumped_seconds:
            self.steady.add_jump(jumped_seconds)
        return jumped_seconds
