"""Jobs in a database."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from autoscaler.domain.job import JobPhase, JobRecord, JobSpec
from autoscaler.store.repositories.jobs import FINAL_PHASES, Jobs, new_id, unknown_job
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.schema import JobRow


class SqlJobs(Jobs):
    """Repository on the table of jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, spec: JobSpec, now_seconds: float) -> JobRecord:
        with self._database.write() as session:
            rows_of_name = session.scalars(select(JobRow).where(JobRow.name == spec.name))
            row = JobRow(
                id=new_id(spec.name, [earlier.to(JobRecord) for earlier in rows_of_name]),
                name=spec.name,
                spec=spec,
                phase=JobPhase.PENDING,
                submitted_seconds=now_seconds,
                attempt=1,
                last_lines=(),
            )
            session.add(row)
            session.flush()
            return row.to(JobRecord)

    def find(self, name_or_id: str) -> JobRecord:
        with self._database.read() as session:
            rows_of_name = select(JobRow).where(JobRow.name == name_or_id)
            row = session.scalars(rows_of_name.order_by(JobRow.number.desc()).limit(1)).first()
            return (row or job_row(session, name_or_id)).to(JobRecord)

    def get(self, job: str) -> JobRecord:
        with self._database.read() as session:
            return job_row(session, job).to(JobRecord)

    def alive(self) -> tuple[JobRecord, ...]:
        return self._list(select(JobRow).where(JobRow.phase.not_in(FINAL_PHASES)))

    def ended_with_lighthouse(self) -> tuple[JobRecord, ...]:
        has_ended = JobRow.phase.in_(FINAL_PHASES)
        return self._list(select(JobRow).where(has_ended, JobRow.lighthouse.is_not(None)))

    def all(self) -> tuple[JobRecord, ...]:
        return self._list(select(JobRow))

    def _list(self, rows: Select[JobRow]) -> tuple[JobRecord, ...]:
        with self._database.read() as session:
            sorted_rows = session.scalars(rows.order_by(JobRow.number))
            return tuple(row.to(JobRecord) for row in sorted_rows)

    def _change(self, job: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord:
        with self._database.write() as session:
            row = job_row(session, job)
            record = change(row.to(JobRecord))
            row.take(record)
            return record


def job_row(session: Session, job: str) -> JobRow:
    """Return the row of a job.

    Raises:
        UnknownJob: no job has this id; the message suggests similar ids.
    """
    row = session.scalars(select(JobRow).where(JobRow.id == job)).one_or_none()
    if row is None:
        raise unknown_job(job, session.scalars(select(JobRow.id)).all())
    return row
