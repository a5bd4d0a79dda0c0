"""Jobs in a database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from sqlalchemy import ColumnElement, Select, exists, func, select, tuple_
from sqlalchemy.orm import Session, aliased

from autoscaler.domain.errors import UnknownJob
from autoscaler.domain.job import JobPhase, JobRecord, JobSpec
from autoscaler.store.repositories.jobs import (
    FINAL_PHASES,
    JobFilter,
    JobOrder,
    JobPlace,
    Jobs,
    new_id,
    unknown_job,
)
from autoscaler.store.sql.cache import LiveRecords, after_commit
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.job_facts import batches
from autoscaler.store.sql.leases import check_driver
from autoscaler.store.sql.schema import JobRow

_Other = aliased(JobRow)
_ENDED_LIT: Final = ("ended jobs with a lighthouse",)


def live_jobs() -> LiveRecords[JobRecord]:
    """Return an empty table of the jobs that have not ended, by number."""
    return LiveRecords(
        lambda record: not record.phase.is_final, lambda record: record.number, lambda record: ""
    )


class SqlJobs(Jobs):
    """Repository on the table of jobs."""

    def __init__(self, database: Database, live: LiveRecords[JobRecord]) -> None:
        self._database = database
        self._live = live

    def add(self, spec: JobSpec, now_seconds: float, driver: str | None = None) -> JobRecord:
        with self._database.write() as session:
            check_driver(session, spec.study, driver)
            rows_of_name = session.scalars(select(JobRow).where(JobRow.name == spec.name))
            row = JobRow(
                id=new_id(spec.name, [earlier.to(JobRecord) for earlier in rows_of_name]),
                name=spec.name,
                spec=spec,
                phase=JobPhase.PENDING,
                submitted_seconds=now_seconds,
                attempt=1,
                last_lines=(),
                person=spec.owner.person,
                team=spec.team,
                study=spec.study,
                checkpoint_directory=spec.shared_directory,
            )
            session.add(row)
            session.flush()
            record = row.to(JobRecord)
            keep_job(self._database, session, self._live, record)
            return record

    def of_name(self, name: str) -> tuple[JobRecord, ...]:
        return self._list(select(JobRow).where(JobRow.name == name))

    def of_directory(self, directory: str) -> tuple[JobRecord, ...]:
        return self._list(select(JobRow).where(JobRow.checkpoint_directory == directory))

    def of_ids(self, jobs: Collection[str]) -> Mapping[str, JobRecord]:
        with self._database.read() as session:
            lists = (
                _listed(session, select(JobRow).where(JobRow.id.in_(some)))
                for some in batches(jobs)
            )
            return {record.id: record for records in lists for record in records}

    def get(self, job: str) -> JobRecord:
        record = self._live.get(job) if self._is_live_loaded() else None
        if record is not None:
            return record
        with self._database.read() as session:
            return job_row(session, job).to(JobRecord)

    def alive(self) -> tuple[JobRecord, ...]:
        if self._is_live_loaded():
            return self._live.all()
        with self._database.read() as session:
            return _alive_jobs(session)

    def _is_live_loaded(self) -> bool:
        return self._database.live(self._live, _alive_jobs)

    def ended_with_lighthouse(self) -> tuple[JobRecord, ...]:
        return self._database.cached(_ENDED_LIT, _ended_with_lighthouse)

    def all(self) -> tuple[JobRecord, ...]:
        return self._list(select(JobRow))

    def page(
        self,
        wanted: JobFilter,
        order: JobOrder,
        limit: int | None,
        after: JobPlace | None = None,
    ) -> tuple[JobRecord, ...]:
        rows = select(JobRow).where(*_conditions(wanted)).limit(limit)
        if after is not None:
            rows = rows.where(_is_after(order, after))
        match order:
            case JobOrder.NEWEST:
                rows = rows.order_by(JobRow.number.desc())
            case JobOrder.OLDEST:
                rows = rows.order_by(JobRow.number)
            case JobOrder.NAME:
                rows = rows.order_by(JobRow.name, JobRow.number)
        with self._database.read() as session:
            return tuple(row.to(JobRecord) for row in session.scalars(rows))

    def phase_counts(self, wanted: JobFilter) -> Mapping[JobPhase, int]:
        counts = select(JobRow.phase, func.count()).where(*_conditions(wanted))
        with self._database.read() as session:
            return {
                phase: count for phase, count in session.execute(counts.group_by(JobRow.phase))
            }

    def _list(self, rows: Select[JobRow]) -> tuple[JobRecord, ...]:
        with self._database.read() as session:
            return _listed(session, rows)

    def _change(
        self, job: str, change: Callable[[JobRecord], JobRecord], driver: str | None = None
    ) -> JobRecord:
        with self._database.write() as session:
            row = job_row(session, job)
            before = row.to(JobRecord)
            check_driver(session, before.spec.study, driver)
            record = change(before)
            row.take(record)
            keep_job(self._database, session, self._live, record)
            return record


def _conditions(wanted: JobFilter) -> Iterator[ColumnElement[bool]]:
    """Yield what rows of a list fulfil."""
    if wanted.phases is not None:
        yield JobRow.phase.in_(wanted.phases)
    if wanted.person is not None:
        yield JobRow.person == wanted.person
    if wanted.team is not None:
        yield JobRow.team == wanted.team
    if wanted.study is not None:
        yield JobRow.study == wanted.study
    if wanted.ended_since_seconds is not None:
        yield JobRow.ended_seconds >= wanted.ended_since_seconds
    if wanted.is_latest:
        is_later = (
            _Other.name == JobRow.name,
            _Other.person == JobRow.person,
            _Other.number > JobRow.number,
        )
        yield ~exists().where(*is_later)
    if wanted.text:
        # The index of ids alone is searched, since rows of jobs are large.
        matching = select(_Other.number).where(_Other.id.contains(wanted.text, autoescape=True))
        yield JobRow.number.in_(matching)


def _is_after(order: JobOrder, place: JobPlace) -> ColumnElement[bool]:
    """Return whether a row is after a place of a list."""
    match order:
        case JobOrder.NEWEST:
            return JobRow.number < place.number
        case JobOrder.OLDEST:
            return JobRow.number > place.number
        case JobOrder.NAME:
            return tuple_(JobRow.name, JobRow.number) > (place.name, place.number)


def keep_job(
    database: Database, session: Session, live: LiveRecords[JobRecord], record: JobRecord
) -> None:
    """Keep a changed job in memory, once the transaction is committed."""
    after_commit(session, lambda: live.put(record))
    if record.phase.is_final:
        database.drop_after_commit(session, _ENDED_LIT)


def _listed(session: Session, rows: Select[JobRow]) -> tuple[JobRecord, ...]:
    return tuple(JobRow.read(session, JobRecord, rows.order_by(JobRow.number)))


def _ended_with_lighthouse(session: Session) -> tuple[JobRecord, ...]:
    has_ended = JobRow.phase.in_(FINAL_PHASES)
    return _listed(session, select(JobRow).where(has_ended, JobRow.lighthouse.is_not(None)))


def _alive_jobs(session: Session) -> tuple[JobRecord, ...]:
    return _listed(session, select(JobRow).where(JobRow.phase.not_in(FINAL_PHASES)))


def job_row(session: Session, job: str) -> JobRow:
    """Return the row of a job.

    Raises:
        UnknownJob: no job has this id; the message suggests similar ids.
    """
    row = session.scalars(select(JobRow).where(JobRow.id == job)).one_or_none()
    if row is None:
        raise _unknown(session, job)
    return row


def job_phase(session: Session, job: str) -> JobPhase:
    """Return the phase of a job, without its large columns.

    Raises:
        UnknownJob: no job has this id; the message suggests similar ids.
    """
    phase = session.scalar(select(JobRow.phase).where(JobRow.id == job))
    if phase is None:
        raise _unknown(session, job)
    return phase


def _unknown(session: Session, job: str) -> UnknownJob:
    return unknown_job(job, session.scalars(select(JobRow.id)).all())
