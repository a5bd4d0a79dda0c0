"""Reports and failures in a database."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.domain.report import Failure, ReportOrigin, ReportSample, TrainingReport
from autoscaler.store.records.samples import SampleMark, kept, sample_of
from autoscaler.store.repositories.reports import (
    FailureRecord,
    InstanceMark,
    JobMark,
    Reports,
    failed,
    judge,
    reported,
)
from autoscaler.store.repositories.time_uses import lost_work_of
from autoscaler.store.sql.cache import LiveRecords
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.instances import instance_row
from autoscaler.store.sql.job_facts import FactCache, grouped
from autoscaler.store.sql.jobs import job_row, keep_job
from autoscaler.store.sql.measurements import SqlBook
from autoscaler.store.sql.schema import FailureRow, JobRow, SampleRow
from autoscaler.store.sql.time_uses import LostWorkRow

_FAILURES: Final = "failures"


class SqlReports(Reports):
    """Repository on the table of failures. Rows of jobs and instances hold the reports."""

    def __init__(self, database: Database, live: LiveRecords[JobRecord], facts: FactCache) -> None:
        """Use a database, and the live jobs and facts that its other repositories keep."""
        self._database = database
        self._live = live
        self._facts = facts

    def add(
        self, job: str, report: TrainingReport, origin: ReportOrigin, now_seconds: float
    ) -> bool:
        with self._database.write() as session:
            row, instance = job_row(session, job), instance_row(session, origin.instance)
            record = row.to(JobRecord)
            verdict = judge(
                report,
                origin,
                (record, row.to(JobMark)),
                (instance.to(HeldInstance), instance.to(InstanceMark)),
            )
            if verdict.counts:
                instance.take(InstanceMark(origin.started_seconds, report.step))
                SqlBook(self._database, session, job).add_report(report, now_seconds)
            if verdict.is_latest:
                lost = lost_work_of(record, row.to(JobMark), report, origin)
                if lost is not None:
                    session.add(LostWorkRow(job=job, **asdict(lost)))
                latest = reported(record, report, now_seconds)
                row.take(latest)
                row.take(JobMark(origin.attempt, origin.started_seconds))
                keep_job(self._database, session, self._live, latest)
                _sample(session, row, report, now_seconds)
            return verdict.is_latest

    def samples(self, job: str) -> tuple[ReportSample, ...]:
        rows = select(SampleRow).where(SampleRow.job == job).order_by(SampleRow.id)
        with self._database.read() as session:
            return tuple(row.to(ReportSample) for row in session.scalars(rows))

    def add_failure(self, job: str, failure: Failure, now_seconds: float) -> bool:
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
            record = failed(row.to(JobRecord), failure)
            row.take(record)
            keep_job(self._database, session, self._live, record)
            self._database.drop_after_commit(session, (_FAILURES, job))
            return True

    def failures(self, job: str) -> tuple[Failure, ...]:
        def load(session: Session, jobs: Sequence[str]) -> Mapping[str, tuple[Failure, ...]]:
            rows = select(FailureRow).where(FailureRow.job.in_(jobs)).order_by(FailureRow.id)
            return grouped(jobs, ((row.job, row.failure) for row in session.scalars(rows)))

        return self._facts.of_job(_FAILURES, job, load)

    def last_failures(self, jobs: Collection[str]) -> Mapping[str, Failure]:
        rows = select(FailureRow).where(FailureRow.job.in_(jobs)).order_by(FailureRow.id)
        with self._database.read() as session:
            return {row.job: row.failure for row in session.scalars(rows)}

    def recent_failures(
        self, since_seconds: float, job: str | None = None
    ) -> tuple[FailureRecord, ...]:
        rows = select(FailureRow).where(FailureRow.at_seconds >= since_seconds)
        if job is not None:
            rows = rows.where(FailureRow.job == job)
        with self._database.read() as session:
            return tuple(
                FailureRecord(row.job, row.at_seconds, row.failure)
                for row in session.scalars(rows.order_by(FailureRow.id))
            )


def _sample(session: Session, row: JobRow, report: TrainingReport, now_seconds: float) -> None:
    """Keep a sample of a report if one is due."""
    mark = row.to(SampleMark)
    if not mark.is_due(now_seconds):
        return
    if mark.is_full:
        mark = mark.thinned()
        _thin(session, row.id)
    sample = SampleRow(job=row.id)
    sample.take(sample_of(report, now_seconds))
    session.add(sample)
    row.take(mark.with_one_more(now_seconds))


def _thin(session: Session, job: str) -> None:
    """Delete the samples of a job that a thinning does not keep."""
    session.flush()
    ids = session.scalars(
        select(SampleRow.id).where(SampleRow.job == job).order_by(SampleRow.id)
    ).all()
    surplus = set(ids) - set(kept(ids))
    session.execute(
        delete(SampleRow).where(SampleRow.id.in_(surplus)),
        execution_options={"synchronize_session": False},
    )
