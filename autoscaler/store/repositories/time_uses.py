"""Use of instances' time, as agents count it, and work that jobs had to make again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from autoscaler.domain.job import JobRecord
from autoscaler.domain.report import ReportOrigin, TrainingReport
from autoscaler.domain.time_use import LostWork, TimeCount, TimeUse
from autoscaler.store.repositories.reports import JobMark


class TimeUses(ABC):
    """Use of time by instance and job, and by day. Values are of the last counts.

    A count changes memory only, until `keep`. A controller that is killed loses the counts since,
    which the agents repeat; those of instances that have ended are lost.
    """

    @abstractmethod
    def count(self, instance: str, job: str, count: TimeCount, held_seconds: float | None) -> None:
        """Take a count of the time of an instance for a job; a late one changes nothing.

        `held_seconds` is the time since which the job has held the instance; None: unknown. The
        time until the first count began is that of a boot in `days`.
        """

    def of_job(self, job: str) -> Mapping[str, TimeCount]:
        """Return the last counts for a job, by instance."""
        return self.of_jobs((job,))[job]

    def lost_work(self, job: str) -> tuple[LostWork, ...]:
        """Return the work that a job made again, in order of its loss."""
        return self.lost_work_of_jobs((job,))[job]

    @abstractmethod
    def of_jobs(self, jobs: Collection[str]) -> Mapping[str, Mapping[str, TimeCount]]:
        """Return the last counts for each of some jobs, by instance."""

    @abstractmethod
    def lost_work_of_jobs(self, jobs: Collection[str]) -> Mapping[str, tuple[LostWork, ...]]:
        """Return the work that each of some jobs made again, in order of its loss."""

    @abstractmethod
    def days(self, first: date) -> Mapping[date, TimeUse]:
        """Return the time counted on each day (UTC) from `first` on.

        Time belongs to the day of its report. Work that was made again is still useful here.
        """

    @abstractmethod
    def keep(self, now_seconds: float) -> None:
        """Store counts that are in memory only, those of each instance at most once a minute."""


@dataclass(frozen=True, slots=True)
class KeptCount:
    """Time of an instance for a job: the last count, and `earlier` ones since `begun_seconds`.

    An agent that lost its own record begins another count, and the time between is not known.
    """

    count: TimeCount
    begun_seconds: float
    earlier: TimeUse = field(default_factory=TimeUse)

    @property
    def whole(self) -> TimeCount:
        """All counts as one."""
        use = self.earlier + self.count.use
        return TimeCount(self.begun_seconds, use, self.count.present)

    def next(self, count: TimeCount) -> KeptCount | None:
        """Return the record with a new count; None if the count is late."""
        if count.begun_seconds < self.count.begun_seconds:
            return None
        if count.begun_seconds > self.count.begun_seconds:
            return KeptCount(count, self.begun_seconds, self.earlier + self.count.use)
        if count.use.total_seconds < self.count.use.total_seconds:
            return None
        return KeptCount(count, self.begun_seconds, self.earlier)


def first_count(count: TimeCount, held_seconds: float | None) -> tuple[KeptCount, TimeUse]:
    """Return the record of a first count, and its time with that of the boot before it."""
    kept = KeptCount(count, count.begun_seconds)
    boot_seconds = 0.0 if held_seconds is None else max(count.begun_seconds - held_seconds, 0.0)
    return kept, count.use + TimeUse(boot_seconds=boot_seconds)


def day_of(at_seconds: float) -> date:
    """Return the day (UTC) of a time."""
    return datetime.fromtimestamp(at_seconds, UTC).date()


def lost_work_of(
    record: JobRecord, mark: JobMark, report: TrainingReport, origin: ReportOrigin
) -> LostWork | None:
    """Return the work that a new start of a job makes again; None without any, or if unknown.

    Args:
        record: the job before the report.
        mark: the start of its latest report.
        report: the report, which becomes the job's latest.
        origin: the start that it is from.
    """
    known = record.report
    if known is None or mark.report_attempt is None or mark.report_started_seconds is None:
        return None
    start = origin.attempt, origin.started_seconds
    if start <= (mark.report_attempt, mark.report_started_seconds):
        return None
    # A replica that joined the others also has a later start, but has lost nothing.
    is_behind = report.step < known.step or origin.attempt > mark.report_attempt
    if not is_behind or report.steps is None or not known.steps or known.trained_seconds is None:
        return None
    steps = known.step - (report.step - report.steps)
    if steps <= 0 or record.reported_seconds is None:
        return None
    seconds = steps * known.trained_seconds / known.steps
    return LostWork(record.reported_seconds, seconds, steps)
