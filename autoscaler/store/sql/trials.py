"""Calls of trials and leases of studies in a database."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import bindparam, func, insert, select, update
from sqlalchemy.orm import Session

from autoscaler.domain.job import JobSpec
from autoscaler.domain.trial import GivenAnswer, TrialAnswer, TrialCall, WaitingCall
from autoscaler.store.database import Database
from autoscaler.store.sql.jobs import job_row
from autoscaler.store.study_schema import IncarnationRow, LeaseRow, TrialCallRow
from autoscaler.store.trials import Leases, Trials, already_driven, refuse_superseded

# Statements of the core, not of the mapper: every report of every trial passes through them.
_ANSWER = (
    update(TrialCallRow.__table__)  # type: ignore[arg-type]
    .where(
        TrialCallRow.job == bindparam("in_job"),
        TrialCallRow.incarnation == bindparam("in_incarnation"),
        TrialCallRow.number == bindparam("to_number"),
        TrialCallRow.answer.is_(None),
    )
    .values(answer=bindparam("answer"))
)


class SqlTrials(Trials):
    """The tables of incarnations and their calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, job: str, instance: str, started_seconds: float) -> int:
        with self._database.write() as session:
            known = select(IncarnationRow.number).where(
                IncarnationRow.job == job,
                IncarnationRow.instance == instance,
                IncarnationRow.started_seconds == started_seconds,
            )
            where = _instance_that_counts(job_row(session, job).spec, instance)
            number = session.scalar(known)
            if number is not None:
                refuse_superseded(job, number, _latest(session, job, where))
                return number
            number = _latest(session, job) + 1
            row = IncarnationRow(
                job=job, number=number, instance=instance, started_seconds=started_seconds
            )
            session.add(row)
            return number

    def tell(self, job: str, incarnation: int, calls: Iterable[TrialCall]) -> str:
        with self._database.write() as session:
            spec = job_row(session, job).spec
            row = session.get(IncarnationRow, (job, incarnation)) if spec.distributed else None
            where = None if row is None else row.instance
            refuse_superseded(job, incarnation, _latest(session, job, where))
            study = spec.study or ""
            told = {call.number: call for call in calls}
            own = select(TrialCallRow.number).where(
                TrialCallRow.job == job,
                TrialCallRow.incarnation == incarnation,
                TrialCallRow.number.in_(told),
            )
            known = set(session.scalars(own))
            common = {"study": study, "job": job, "incarnation": incarnation}
            new = [
                {**common, "number": call.number, "text": call.text}
                for call in told.values()
                if call.number not in known
            ]
            if new:
                session.connection().execute(insert(TrialCallRow), new)
            return study

    def waiting(self, study: str, limit: int = 1000) -> tuple[WaitingCall, ...]:
        unanswered = (
            select(TrialCallRow)
            .where(TrialCallRow.study == study, TrialCallRow.answer.is_(None))
            .order_by(TrialCallRow.id)
            .limit(limit)
        )
        with self._database.read() as session:
            return tuple(
                WaitingCall(row.job, row.incarnation, TrialCall(row.number, row.text))
                for row in session.scalars(unanswered)
            )

    def answer(self, answers: Iterable[GivenAnswer]) -> None:
        given = [
            {
                "in_job": each.job,
                "in_incarnation": each.incarnation,
                "to_number": each.answer.number,
                "answer": each.answer.text,
            }
            for each in answers
        ]
        if given:  # a question whose answer is lost waits on, and is answered again
            with self._database.write(may_be_lost=True) as session:
                session.connection().execute(_ANSWER, given)

    def answers(self, job: str, incarnation: int, after: int) -> tuple[TrialAnswer, ...]:
        answered = (
            select(TrialCallRow.number, TrialCallRow.answer)
            .where(
                TrialCallRow.job == job,
                TrialCallRow.incarnation == incarnation,
                TrialCallRow.number > after,
                TrialCallRow.answer.is_not(None),
            )
            .order_by(TrialCallRow.number)
        )
        with self._database.read() as session:
            return tuple(
                TrialAnswer(number, text or "") for number, text in session.execute(answered)
            )


class SqlLeases(Leases):
    """The table of leases."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(self, study: str, holder: str, now_seconds: float, seconds: float) -> None:
        with self._database.write() as session:
            row = session.get(LeaseRow, study)
            if row is not None and row.holder != holder and row.until_seconds > now_seconds:
                raise already_driven(study, row.holder, row.until_seconds - now_seconds)
            session.merge(
                LeaseRow(study=study, holder=holder, until_seconds=now_seconds + seconds)
            )

    def leave(self, study: str, holder: str) -> None:
        with self._database.write() as session:
            row = session.get(LeaseRow, study)
            if row is not None and row.holder == holder:
                session.delete(row)

    def holder(self, study: str, now_seconds: float) -> str | None:
        with self._database.read() as session:
            row = session.get(LeaseRow, study)
            return row.holder if row is not None and row.until_seconds > now_seconds else None


def _instance_that_counts(spec: JobSpec, instance: str) -> str | None:
    """The instance on which a later incarnation supersedes one of this instance; None for any."""
    return instance if spec.distributed else None


def _latest(session: Session, job: str, instance: str | None = None) -> int:
    """The number of the incarnation that began last, there or anywhere; 0 if none has."""
    numbers = select(func.max(IncarnationRow.number)).where(IncarnationRow.job == job)
    if instance is not None:
        numbers = numbers.where(IncarnationRow.instance == instance)
    return session.scalar(numbers) or 0
