"""Jobs: what was submitted, and the phases it goes through."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

from sqlalchemy import select
from sqlalchemy.orm import Session

from autoscaler.domain.errors import Conflict, UnknownJob
from autoscaler.domain.job import InstanceBounds, JobPhase, JobRecord, JobSpec
from autoscaler.domain.objective import Objective
from autoscaler.store.database import Database
from autoscaler.store.schema import JobRow

_FINAL = tuple(phase for phase in JobPhase if phase.is_final)
_NEXT = {
    JobPhase.PENDING: set(JobPhase),
    JobPhase.RUNNING: {JobPhase.PENDING, JobPhase.STOPPING, JobPhase.FINISHED, JobPhase.FAILED},
    JobPhase.STOPPING: set(_FINAL),
}


class Jobs:
    """The jobs of one store. Methods take ids; only `find` also takes names."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, spec: JobSpec, now_seconds: float) -> JobRecord:
        """Add a job. Its id is its name, and the name with `.2`, `.3`... when used before.

        Raises:
            Conflict: a job of that name has not ended.
        """
        with self._database.write() as session:
            earlier = session.scalars(select(JobRow).where(JobRow.name == spec.name)).all()
            for row in earlier:
                if not row.phase.is_final:
                    raise Conflict(
                        f"job {row.id} is {row.phase}: wait for its end, "
                        f"say castor stop {row.id}, or choose another name"
                    )
            row = JobRow(
                id=f"{spec.name}.{len(earlier) + 1}" if earlier else spec.name,
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
        """The latest job of that name, else the job of that id: what a person means.

        Raises:
            UnknownJob: there is none; the message suggests names that are close.
        """
        with self._database.read() as session:
            of_name = select(JobRow).where(JobRow.name == name_or_id)
            row = session.scalars(of_name.order_by(JobRow.number.desc()).limit(1)).first()
            return (row or job_row(session, name_or_id)).to(JobRecord)

    def get(self, job: str) -> JobRecord:
        """The job of exactly this id.

        Raises:
            UnknownJob: there is none.
        """
        with self._database.read() as session:
            return job_row(session, job).to(JobRecord)

    def alive(self) -> tuple[JobRecord, ...]:
        """All jobs that have not ended, the oldest first."""
        with self._database.read() as session:
            rows = select(JobRow).where(JobRow.phase.not_in(_FINAL)).order_by(JobRow.number)
            return tuple(row.to(JobRecord) for row in session.scalars(rows))

    def ended_with_lighthouse(self) -> tuple[JobRecord, ...]:
        """The jobs that have ended and whose lighthouse has not been put out."""
        with self._database.read() as session:
            rows = select(JobRow).where(JobRow.phase.in_(_FINAL), JobRow.lighthouse.is_not(None))
            return tuple(row.to(JobRecord) for row in session.scalars(rows))

    def all(self) -> tuple[JobRecord, ...]:
        """All jobs there ever were, the oldest first."""
        with self._database.read() as session:
            rows = select(JobRow).order_by(JobRow.number)
            return tuple(row.to(JobRecord) for row in session.scalars(rows))

    def set_phase(
        self, job: str, phase: JobPhase, now_seconds: float, cause: str | None = None
    ) -> JobRecord:
        """Move a job on. To set the phase that it has changes nothing but a given `cause`.

        Raises:
            Conflict: the phase does not follow from the one that is.
            UnknownJob: there is none.
        """
        with self._database.write() as session:
            row = job_row(session, job)
            if phase is not row.phase:
                _move(row, phase, now_seconds)
            if cause is not None:
                row.cause = cause
            return row.to(JobRecord)

    def request_stop(self, job: str, now_seconds: float) -> JobRecord:
        """Have a job stopped; it is `STOPPING` until what it holds has been given back.

        Raises:
            Conflict: the job has ended.
            UnknownJob: there is none.
        """
        return self.set_phase(job, JobPhase.STOPPING, now_seconds)

    def change_spec(
        self,
        job: str,
        objective: Objective | None = None,
        instances: InstanceBounds | None = None,
    ) -> JobRecord:
        """Change what may be changed while a job runs; None leaves it as it is.

        Raises:
            Conflict: the job is stopping or has ended.
            UnknownJob: there is none.
        """
        with self._database.write() as session:
            row = job_row(session, job)
            if row.phase.is_final or row.phase is JobPhase.STOPPING:
                state = f"has ended ({row.phase})" if row.phase.is_final else "is stopping"
                raise Conflict(f"job {row.id} {state}: submit it again to change it")
            row.spec = replace(
                row.spec,
                objective=objective or row.spec.objective,
                instances=instances or row.spec.instances,
            )
            return row.to(JobRecord)

    def set_lighthouse(self, job: str, address: str | None) -> None:
        """Keep the address of the job's lighthouse; None when it has none.

        Raises:
            UnknownJob: there is none.
        """
        with self._database.write() as session:
            job_row(session, job).lighthouse = address

    def start_attempt(self, job: str, attempt: int, retry_seconds: float | None) -> None:
        """Number the next start of the script; it is held back until `retry_seconds`.

        Raises:
            Conflict: a later attempt was started already, or the job has ended.
            UnknownJob: there is none.
        """
        with self._database.write() as session:
            row = job_row(session, job)
            if row.phase.is_final or attempt < row.attempt:
                raise Conflict(
                    f"job {job} is {row.phase} in attempt {row.attempt}: "
                    f"attempt {attempt} can't start any more"
                )
            row.attempt = attempt
            row.retry_seconds = retry_seconds


def job_row(session: Session, job: str) -> JobRow:
    """The row of a job, or `UnknownJob` with the ids that are close."""
    row = session.scalars(select(JobRow).where(JobRow.id == job)).one_or_none()
    if row is not None:
        return row
    close = get_close_matches(job, session.scalars(select(JobRow.id)).all())
    meant = f"did you mean {' or '.join(close)}?" if close else "castor status lists all jobs"
    raise UnknownJob(f"no job {job!r}: {meant}")


def _move(row: JobRow, phase: JobPhase, now_seconds: float) -> None:
    if row.phase.is_final:
        raise Conflict(f"job {row.id} has ended ({row.phase}): it can't become {phase}")
    if phase not in _NEXT[row.phase]:
        raise Conflict(f"job {row.id} is {row.phase}: it can't become {phase}")
    row.phase = phase
    if phase is JobPhase.RUNNING and row.started_seconds is None:
        row.started_seconds = now_seconds
    if phase.is_final:
        row.ended_seconds = now_seconds
