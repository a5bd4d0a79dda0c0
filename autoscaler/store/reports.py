"""What running jobs tell of themselves: reports of training, and failures."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import func, select

from autoscaler.domain.errors import Conflict
from autoscaler.domain.report import Failure, ReportOrigin, TrainingReport
from autoscaler.store.database import Database
from autoscaler.store.instances import instance_row
from autoscaler.store.jobs import job_row
from autoscaler.store.measurements import measure
from autoscaler.store.schema import FailureRow, InstanceRow, JobRow


class Reports:
    """Reports and failures of the jobs of one store."""

    def __init__(self, database: Database) -> None:
        self._database = database

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
        with self._database.write() as session:
            row = job_row(session, job)
            instance = instance_row(session, origin.instance)
            if instance.job != job:
                raise Conflict(f"instance {instance.id} belongs to job {instance.job}, not {job}")
            if instance.ended_seconds is not None or _is_overtaken(origin, instance):
                return False
            if _goes_on(origin, report, instance):
                instance.report_started_seconds = origin.started_seconds
                instance.report_step = report.step
                measure(session, job, report, now_seconds)
            if not _is_latest(origin, report, row):
                return False
            row.report = replace(report, observations=(), pauses=())
            row.reported_seconds = now_seconds
            row.report_attempt = origin.attempt
            row.report_started_seconds = origin.started_seconds
            return True

    def add_failure(self, job: str, failure: Failure, now_seconds: float) -> bool:
        """Keep a failed start of the script; return False if that start's is kept already.

        Raises:
            UnknownJob: there is none.
        """
        with self._database.write() as session:
            row = job_row(session, job)
            known = select(func.count()).where(
                FailureRow.job == job,
                FailureRow.instance == failure.instance,
                FailureRow.attempt == failure.attempt,
            )
            if session.scalar(known):
                return False
            session.add(
                FailureRow(
                    job=job,
                    instance=failure.instance,
                    attempt=failure.attempt,
                    at_seconds=now_seconds,
                    failure=failure,
                )
            )
            row.cause = failure.cause
            row.last_lines = failure.last_lines
            return True

    def failures(self, job: str) -> tuple[Failure, ...]:
        """The failed starts of a job, in the order in which they were told."""
        with self._database.read() as session:
            rows = select(FailureRow).where(FailureRow.job == job).order_by(FailureRow.id)
            return tuple(row.failure for row in session.scalars(rows))


def _is_overtaken(origin: ReportOrigin, instance: InstanceRow) -> bool:
    begun = instance.report_started_seconds
    return begun is not None and origin.started_seconds < begun


def _goes_on(origin: ReportOrigin, report: TrainingReport, instance: InstanceRow) -> bool:
    if instance.report_started_seconds is None or instance.report_step is None:
        return True
    last = (instance.report_started_seconds, instance.report_step)
    return (origin.started_seconds, report.step) > last


def _is_latest(origin: ReportOrigin, report: TrainingReport, row: JobRow) -> bool:
    if row.report is None or row.report_attempt is None or row.report_started_seconds is None:
        return True
    later_start = (origin.attempt, origin.started_seconds) > (
        row.report_attempt,
        row.report_started_seconds,
    )
    return later_start or report.step >= row.report.step
