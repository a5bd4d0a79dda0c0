"""What running jobs tell of themselves: reports of training, and failures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from autoscaler.domain.errors import Conflict
from autoscaler.domain.goodput import with_limit
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.domain.report import Failure, ReportOrigin, TrainingReport
from autoscaler.domain.report_rules import MOST_KINDS


class Reports(ABC):
    """Reports and failures of the jobs of one store."""

    @abstractmethod
    def add(
        self, job: str, report: TrainingReport, origin: ReportOrigin, now_seconds: float
    ) -> bool:
        """Keep what a job tells of itself; return whether it is now its latest report.

        A report becomes the latest if its step is not behind the latest one's, or if a later
        start of the script tells it (by attempt, then by time of start): after a restart from a
        checkpoint the step goes back. It is passed over if its instance has ended or has begun
        a later start. So no report that is late replaces a newer one of the same start, and if
        a late one of an earlier start got through, the next report puts it right.

        Step times and pauses are counted once, also if a report comes twice: those of an
        instance must go on in (start, step).

        Raises:
            UnknownJob, UnknownInstance: there is none.
            Conflict: the instance is not one of this job's.
        """

    @abstractmethod
    def add_failure(self, job: str, failure: Failure, now_seconds: float) -> bool:
        """Keep a failed start of the script; return False if that start's is kept already.

        Raises:
            UnknownJob: there is none.
        """

    @abstractmethod
    def failures(self, job: str) -> tuple[Failure, ...]:
        """The failed starts of a job, in the order in which they were told."""


@dataclass(frozen=True, slots=True)
class InstanceMark:
    """How far the reports of an instance have come: the start and step of its last one."""

    report_started_seconds: float | None = None
    report_step: int | None = None


@dataclass(frozen=True, slots=True)
class JobMark:
    """Which start of the script told the latest report of a job."""

    report_attempt: int | None = None
    report_started_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a report is good for: its step times and pauses count, it is its job's latest."""

    counts: bool
    is_latest: bool


def judge(
    report: TrainingReport,
    origin: ReportOrigin,
    job: tuple[JobRecord, JobMark],
    instance: tuple[HeldInstance, InstanceMark],
) -> Verdict:
    """Judge a report by what its job and instance have told before.

    Raises:
        Conflict: the instance is not one of this job's.
    """
    (record, job_mark), (held, instance_mark) = job, instance
    if held.job != record.id:
        raise Conflict(f"instance {held.id} belongs to job {held.job}, not {record.id}")
    begun_seconds = instance_mark.report_started_seconds
    is_overtaken = begun_seconds is not None and origin.started_seconds < begun_seconds
    if held.ended_seconds is not None or is_overtaken:
        return Verdict(counts=False, is_latest=False)
    return Verdict(
        counts=_goes_on(report, origin, instance_mark),
        is_latest=_is_latest(report, origin, record.report, job_mark),
    )


def reported(record: JobRecord, report: TrainingReport, now_seconds: float) -> JobRecord:
    """Return a job with its latest report, without what is measured.

    The least that a device of a kind was known to take at once stays known: whoever reports may
    not have heard that another kind ran out of memory.
    """
    bounds = report.bounds
    if record.report is not None:
        for kind, most in record.report.bounds.kind_maxima:
            if len(bounds.kind_maxima) < MOST_KINDS:
                bounds = bounds.limited(kind, most)
    kept = replace(report, observations=(), pauses=(), bounds=bounds)
    return replace(record, report=kept, reported_seconds=now_seconds)


def failed(record: JobRecord, failure: Failure) -> JobRecord:
    """Return a job of which a start of the script failed.

    The next start is told what devices take at once, where memory ran out in this one.
    """
    record = replace(record, cause=failure.cause, last_lines=failure.last_lines)
    if failure.device_limit is None:
        return record
    kind, most = failure.device_limit
    batch = record.spec.batch
    limited = replace(batch, kind_maxima=with_limit(batch.kind_maxima, kind, most))
    report = record.report
    if report is not None:
        report = replace(report, bounds=report.bounds.limited(kind, most))
    return replace(record, spec=replace(record.spec, batch=limited), report=report)


def _goes_on(report: TrainingReport, origin: ReportOrigin, mark: InstanceMark) -> bool:
    if mark.report_started_seconds is None or mark.report_step is None:
        return True
    last = (mark.report_started_seconds, mark.report_step)
    return (origin.started_seconds, report.step) > last


def _is_latest(
    report: TrainingReport, origin: ReportOrigin, known: TrainingReport | None, mark: JobMark
) -> bool:
    if known is None or mark.report_attempt is None or mark.report_started_seconds is None:
        return True
    told_by = (mark.report_attempt, mark.report_started_seconds)
    is_later_start = (origin.attempt, origin.started_seconds) > told_by
    return is_later_start or report.step >= known.step
