"""Reports of running jobs: training reports and failures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from autoscaler.domain.errors import Conflict
from autoscaler.domain.goodput import with_limit
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.domain.report import Failure, ReportOrigin, ReportSample, TrainingReport
from autoscaler.domain.report_rules import MOST_KINDS


class Reports(ABC):
    """Reports and failures of the jobs of one store."""

    @abstractmethod
    def add(
        self, job: str, report: TrainingReport, origin: ReportOrigin, now_seconds: float
    ) -> bool:
        """Store a training report; return whether it is now the latest report of its job.

        A report becomes the latest if its step is not behind the latest step. So does a report
        of a later start of the script, because a restart from a checkpoint lowers the step.
        Starts are ordered by attempt, then by time of start. A report is ignored if its instance
        has ended or has reported a later start.

        Step times and pauses of a repeated report are counted once: for each instance, reports
        count only in increasing order of (start, step).

        Raises:
            UnknownJob, UnknownInstance: no such job or instance.
            Conflict: the instance does not belong to this job.
        """

    @abstractmethod
    def samples(self, job: str) -> tuple[ReportSample, ...]:
        """Return samples of a job's reports by time, at most `samples.MOST_SAMPLES`.

        Only reports that became the latest of their job are sampled.
        """

    @abstractmethod
    def add_failure(self, job: str, failure: Failure, now_seconds: float) -> bool:
        """Store a failed start of the script; return False if that start is stored already.

        Raises:
            UnknownJob: no job has this id.
        """

    @abstractmethod
    def failures(self, job: str) -> tuple[Failure, ...]:
        """Return the failed starts of a job, in order of arrival."""

    @abstractmethod
    def last_failures(self, jobs: Collection[str]) -> Mapping[str, Failure]:
        """Return the failed start that arrived last of each of these jobs that has one, by job."""

    @abstractmethod
    def recent_failures(
        self, since_seconds: float, job: str | None = None
    ) -> tuple[FailureRecord, ...]:
        """Return the failed starts since a time, of all jobs or of one, in order of arrival."""


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """A failed start of a job's script, and when its report arrived, in epoch seconds."""

    job: str
    at_seconds: float
    failure: Failure


@dataclass(frozen=True, slots=True)
class InstanceMark:
    """Start and step of the last report of an instance; None before the first."""

    report_started_seconds: float | None = None
    report_step: int | None = None


@dataclass(frozen=True, slots=True)
class JobMark:
    """Start of the script that sent the latest report of a job; None before the first."""

    report_attempt: int | None = None
    report_started_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Use of a report: whether its measurements count, and whether it is the job's latest."""

    counts: bool
    is_latest: bool


def judge(
    report: TrainingReport,
    origin: ReportOrigin,
    job: tuple[JobRecord, JobMark],
    instance: tuple[HeldInstance, InstanceMark],
) -> Verdict:
    """Decide the use of a report from the earlier reports of its job and instance.

    Raises:
        Conflict: the instance does not belong to this job.
    """
    (record, job_mark), (held, instance_mark) = job, instance
    if held.job != record.id:
        raise Conflict(f"instance {held.id} belongs to job {held.job}, not {record.id}")
    begun_seconds = instance_mark.report_started_seconds
    is_overtaken = begun_seconds is not None and origin.started_seconds < begun_seconds
    if held.ended_seconds is not None or is_overtaken:
        return Verdict(counts=False, is_latest=False)
    return Verdict(
        counts=_is_newer(report, origin, instance_mark),
        is_latest=_is_latest(report, origin, record.report, job_mark),
    )


def reported(record: JobRecord, report: TrainingReport, now_seconds: float) -> JobRecord:
    """Return a job with `report` as its latest, without step times and pauses.

    Limits of examples per device from earlier reports stay in force. The reporter may not know
    that another kind of device ran out of memory.
    """
    bounds = report.bounds
    if record.report is not None:
        for kind, limit in record.report.bounds.kind_maxima:
            if len(bounds.kind_maxima) < MOST_KINDS:
                bounds = bounds.limited(kind, limit)
    kept = replace(report, observations=(), pauses=(), bounds=bounds)
    return replace(record, report=kept, reported_seconds=now_seconds)


def failed(record: JobRecord, failure: Failure) -> JobRecord:
    """Return a job after a failed start of its script.

    If memory ran out, the limit of examples per device applies from the next start on.
    """
    record = replace(record, cause=failure.cause, last_lines=failure.last_lines)
    if failure.device_limit is None:
        return record
    kind, limit = failure.device_limit
    batch = record.spec.batch
    limited = replace(batch, kind_maxima=with_limit(batch.kind_maxima, kind, limit))
    report = record.report
    if report is not None:
        report = replace(report, bounds=report.bounds.limited(kind, limit))
    return replace(record, spec=replace(record.spec, batch=limited), report=report)


def _is_newer(report: TrainingReport, origin: ReportOrigin, mark: InstanceMark) -> bool:
    if mark.report_started_seconds is None or mark.report_step is None:
        return True
    last = (mark.report_started_seconds, mark.report_step)
    return (origin.started_seconds, report.step) > last


def _is_latest(
    report: TrainingReport, origin: ReportOrigin, known: TrainingReport | None, mark: JobMark
) -> bool:
    if known is None or mark.report_attempt is None or mark.report_started_seconds is None:
        return True
    latest_start = (mark.report_attempt, mark.report_started_seconds)
    is_later_start = (origin.attempt, origin.started_seconds) > latest_start
    return is_later_start or report.step >= known.step
