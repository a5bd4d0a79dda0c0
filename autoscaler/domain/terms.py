"""Terms that a study's driver states, and the records of its trials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.objective import Objective
from autoscaler.domain.trial import TrialEnding


@dataclass(frozen=True, slots=True)
class LaterRung:
    """Future rung of a synchronous search: its number of trials, and the progress each makes.

    `work` is in the unit of progress of the study's trials.
    """

    trials: int
    work: float


@dataclass(frozen=True, slots=True)
class StudyTerms:
    """Goals and search plan of a study, restated by its driver at each change.

    `objective` applies to the whole study: deadline, budget, value of time. `to_begin` is the
    number of trials still to begin; None: unlimited. A complete trial makes `full_work` of
    progress; None: unknown. Trials of a `synchronous` search wait for each other at rungs; `later`
    are the rungs after the present one. `directions` are minimize or maximize, one for each value
    of a result. `best` is the best first value so far. `under_way` and `ended` count the trials of
    the study; None: an earlier driver, which does not report them.
    """

    objective: Objective = Objective()
    directions: tuple[str, ...] = ("minimize",)
    to_begin: int | None = None
    full_work: float | None = None
    synchronous: bool = False
    later: tuple[LaterRung, ...] = ()
    best: float | None = None
    under_way: int | None = None
    ended: int | None = None


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """End of the trial of that number in its study; short trials run one after another in a job.

    `value` is the first final value; None without one. `seconds` it took; None: unknown.
    """

    number: int
    ending: TrialEnding
    value: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TrialProgress:
    """Progress of one trial, in the unit in which it reports, such as epochs.

    The next decision on the trial is made at progress `decided_at`; None: unknown, so at its end.
    `features` are its numeric and boolean hyper-parameters. `reports` are (progress, value). A
    trial at `decided_at` waits there for others; if it `pauses`, it can release its instances
    meanwhile. A trial that `has_ended` makes no more progress.
    Several short trials of one job share the progress of the first; `results` are new ends of all.
    """

    job: str
    progress: float = 0.0
    decided_at: float | None = None
    features: Mapping[str, float] = field(default_factory=dict)
    reports: tuple[tuple[float, float], ...] = ()
    pauses: bool = False
    has_ended: bool = False
    results: tuple[TrialOutcome, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether the trial waits at a barrier."""
        return self.decided_at is not None and self.progress >= self.decided_at > 0


@dataclass(frozen=True, slots=True)
class TrialSpeed:
    """Progress that a trial made on one size, and the seconds it took.

    The time to the first report contains start-up, so `has_start` marks such a stretch. It counts
    only until a stretch without start-up is known.
    """

    size: Allocation
    work: float
    seconds: float
    has_start: bool = False


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """Last reported state of a trial, at `told_seconds`, while it trained on `trained`.

    `heard` has the time at which each report first arrived: (progress, seconds since the epoch),
    and `results` the ended trials of the job, each with the time at which its end arrived.
    """

    stands: TrialProgress
    told_seconds: float
    trained: Allocation | None = None
    speeds: tuple[TrialSpeed, ...] = ()
    heard: tuple[tuple[float, float], ...] = ()
    results: tuple[tuple[float, TrialOutcome], ...] = ()

    @property
    def cost_shares(self) -> dict[int, float | None]:
        """Shares of the job's cost of its ended trials, by their numbers and in their order.

        They follow from the trials' times. A share is None while the job runs, and without times.
        """
        results = [result for _, result in self.results]
        known = [result.seconds for result in results if result.seconds is not None]
        total_seconds = sum(known) if self.stands.has_ended else 0.0
        is_known = len(known) == len(results) and total_seconds > 0
        return {
            result.number: (result.seconds or 0.0) / total_seconds if is_known else None
            for result in results
        }

    @classmethod
    def first(
        cls, stands: TrialProgress, trained: Allocation | None, now_seconds: float
    ) -> TrialRecord:
        """Return the record of a trial at its first statement."""
        heard = _report_arrivals((), stands, now_seconds)
        results = _with_results((), stands, now_seconds)
        return cls(replace(stands, results=()), now_seconds, trained, (), heard, results)

    def told(
        self, stands: TrialProgress, trained: Allocation | None, now_seconds: float
    ) -> TrialRecord:
        """Return the record after a new statement. Progress on one size gives its speed.

        A stretch gives no speed if the size changed or the trial went back to a checkpoint.
        Waiting at a barrier is not counted.
        """
        results = _with_results(self.results, stands, now_seconds)
        stands = replace(stands, results=())
        work = stands.progress - self.stands.progress
        seconds = now_seconds - self.told_seconds
        if work == 0 and trained == self.trained:
            goes_on = self.stands.waits and not stands.waits
            told_seconds = now_seconds if goes_on else self.told_seconds
            return replace(self, stands=stands, told_seconds=told_seconds, results=results)
        heard = _report_arrivals(self.heard, stands, now_seconds)
        record = replace(
            self,
            stands=stands,
            told_seconds=now_seconds,
            trained=trained,
            heard=heard,
            results=results,
        )
        if trained is None or trained != self.trained:
            return record
        if not (work > 0 and 0 < seconds < math.inf):
            return record
        new = TrialSpeed(trained, work, seconds, has_start=not self.stands.reports)
        return replace(record, speeds=_with_stretch(self.speeds, new))


def _report_arrivals(
    arrivals: tuple[tuple[float, float], ...], stands: TrialProgress, now_seconds: float
) -> tuple[tuple[float, float], ...]:
    known_arrivals = dict(arrivals)
    return tuple(
        (progress, known_arrivals.get(progress, now_seconds)) for progress, _ in stands.reports
    )


def _with_results(
    results: tuple[tuple[float, TrialOutcome], ...], stands: TrialProgress, now_seconds: float
) -> tuple[tuple[float, TrialOutcome], ...]:
    """Return the results with those of a statement, of which each trial's first counts."""
    known = {result.number for _, result in results}
    new = ((now_seconds, result) for result in stands.results if result.number not in known)
    return (*results, *new)


def _with_stretch(speeds: tuple[TrialSpeed, ...], new: TrialSpeed) -> tuple[TrialSpeed, ...]:
    """Return the speeds with one more stretch; the size that trained last comes first."""
    previous = next((speed for speed in speeds if speed.size == new.size), None)
    if previous is not None and not previous.has_start:
        new = TrialSpeed(new.size, previous.work + new.work, previous.seconds + new.seconds)
    return (new, *(speed for speed in speeds if speed.size != new.size))
