"""What the driver of a study states of it, and what is known of its trials by that."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.objective import Objective


@dataclass(frozen=True, slots=True)
class LaterRung:
    """A rung to come of a synchronous search: how many trials, and how far each goes in it.

    `work` is in the unit of progress of the study's trials.
    """

    trials: int
    work: float


@dataclass(frozen=True, slots=True)
class StudyTerms:
    """What a study is to come to, as its driver states it anew whenever it changes.

    `objective` is of the whole study: deadline, budget, value of time. `to_begin` is how many more
    trials are to begin; None: there is no end to them. A trial that goes all the way makes
    `full_work` of progress; None: not known. Trials of a `synchronous` search wait for each other
    at the rungs, of which `later` are those after the present one. `directions` are minimize or
    maximize, one for each value of a result; `best` is the best of the first so far.
    """

    objective: Objective = Objective()
    directions: tuple[str, ...] = ("minimize",)
    to_begin: int | None = None
    full_work: float | None = None
    synchronous: bool = False
    later: tuple[LaterRung, ...] = ()
    best: float | None = None


@dataclass(frozen=True, slots=True)
class TrialProgress:
    """How far a trial is, in the unit in which it reports: epochs, or what does as well.

    The next decision on it is made at `decided_at`, at its end otherwise; None: not known.
    `features` are those of its hyper-parameters that are numbers, or truth values; `reports` are
    (progress, value). One that has come to `decided_at` waits there for others; if it `pauses` it
    can give back what it holds meanwhile. One that `has_ended` makes no more progress.
    """

    job: str
    progress: float = 0.0
    decided_at: float | None = None
    features: Mapping[str, float] = field(default_factory=dict)
    reports: tuple[tuple[float, float], ...] = ()
    pauses: bool = False
    has_ended: bool = False

    @property
    def waits(self) -> bool:
        """It is at a barrier."""
        return self.decided_at is not None and self.progress >= self.decided_at > 0


@dataclass(frozen=True, slots=True)
class TrialSpeed:
    """How much progress a trial made on one size, and how long that took.

    Up to its first report there is more in it than work, so `has_start` counts until a stretch
    without one is known.
    """

    size: Allocation
    work: float
    seconds: float
    has_start: bool = False


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial as it was told last, at `told_seconds`, while it trained on `trained`.

    `heard` is when each of its reports was told of first: (progress, seconds since the epoch).
    """

    stands: TrialProgress
    told_seconds: float
    trained: Allocation | None = None
    speeds: tuple[TrialSpeed, ...] = ()
    heard: tuple[tuple[float, float], ...] = ()

    @classmethod
    def first(
        cls, stands: TrialProgress, trained: Allocation | None, now_seconds: float
    ) -> TrialRecord:
        """The record of a trial that nothing was told of before."""
        return cls(stands, now_seconds, trained, heard=_heard((), stands, now_seconds))

    def told(
        self, stands: TrialProgress, trained: Allocation | None, now_seconds: float
    ) -> TrialRecord:
        """The record after it was told again. Progress on one size is a speed of that size.

        A stretch in which the size changed, or which went back to a checkpoint, says nothing, and
        what it waited at a barrier is no part of one.
        """
        work = stands.progress - self.stands.progress
        seconds = now_seconds - self.told_seconds
        if work == 0 and trained == self.trained:
            goes_on = self.stands.waits and not stands.waits
            return replace(
                self, stands=stands, told_seconds=now_seconds if goes_on else self.told_seconds
            )
        heard = _heard(self.heard, stands, now_seconds)
        record = replace(
            self, stands=stands, told_seconds=now_seconds, trained=trained, heard=heard
        )
        if trained is None or trained != self.trained:
            return record
        if not (work > 0 and 0 < seconds < math.inf):
            return record
        new = TrialSpeed(trained, work, seconds, has_start=not self.stands.reports)
        return replace(record, speeds=_with(self.speeds, new))


def budget_used_up(study: str) -> str:
    """The cause of the end of jobs that a study can't pay for any more."""
    return f"the budget of study {study} is used up: give it more, its trials go on"


def _heard(
    before: tuple[tuple[float, float], ...], stands: TrialProgress, now_seconds: float
) -> tuple[tuple[float, float], ...]:
    known = dict(before)
    return tuple((at, known.get(at, now_seconds)) for at, _ in stands.reports)


def _with(speeds: tuple[TrialSpeed, ...], new: TrialSpeed) -> tuple[TrialSpeed, ...]:
    """The speeds with one stretch more, the size that trained last first."""
    before = next((each for each in speeds if each.size == new.size), None)
    if before is not None and not before.has_start:
        new = TrialSpeed(new.size, before.work + new.work, before.seconds + new.seconds)
    return (new, *(each for each in speeds if each.size != new.size))
