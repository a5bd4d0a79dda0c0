"""Calls of trials in a database."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import bindparam, func, insert, select, update
from sqlalchemy.orm import Session

from autoscaler.domain.job import JobSpec
from autoscaler.domain.trial import GivenAnswer, TrialAnswer, TrialCall, WaitingCall
from autoscaler.store.repositories.trials import Trials, refuse_superseded
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.jobs import job_row
from autoscaler.store.sql.leases import check_driver
from autoscaler.store.sql.study_schema import IncarnationRow, TrialCallRow

# Core statements, faster than the ORM: every report of every trial passes through them.
_STORE_ANSWER = (
    update(TrialCallRow.__table__)  # type: ignore[arg-type]
    .where(
        TrialCallRow.study == bindparam("in_study"),
        TrialCallRow.job == bindparam("in_job"),
        TrialCallRow.incarnation == bindparam("in_incarnation"),
        TrialCallRow.number == bindparam("to_number"),
        TrialCallRow.answer.is_(None),
    )
    .values(answer=bindparam("answer"))
)


class SqlTrials(Trials):
    """Repository on the tables of incarnations and their calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, job: str, instance: str, started_seconds: float) -> int:
        with self._database.write() as session:
            numbers = select(IncarnationRow.number).where(
                IncarnationRow.job == job,
                IncarnationRow.instance == instance,
                IncarnationRow.started_seconds == started_seconds,
            )
            counted_instance = _counted_instance(job_row(session, job).spec, instance)
            number = session.scalar(numbers)
            if number is not None:
                refuse_superseded(job, number, _latest_incarnation(session, job, counted_instance))
                return number
            number = _latest_incarnation(session, job) + 1
            row = IncarnationRow(
                job=job, number=number, instance=instance, started_seconds=started_seconds
            )
            session.add(row)
            return number

    def tell(self, job: str, incarnation: int, calls: Iterable[TrialCall]) -> str:
        with self._database.write() as session:
            spec = job_row(session, job).spec
            row = session.get(IncarnationRow, (job, incarnation)) if spec.distributed else None
            counted_instance = None if row is None else row.instance
            refuse_superseded(
                job, incarnation, _latest_incarnation(session, job, counted_instance)
            )
            study = spec.study or ""
            calls_by_number = {call.number: call for call in calls}
            known_numbers = select(TrialCallRow.number).where(
                TrialCallRow.job == job,
                TrialCallRow.incarnation == incarnation,
                TrialCallRow.number.in_(calls_by_number),
            )
            stored_numbers = set(session.scalars(known_numbers))
            common = {"study": study, "job": job, "incarnation": incarnation}
            new_rows = [
                {**common, "number": call.number, "text": call.text}
                for call in calls_by_number.values()
                if call.number not in stored_numbers
            ]
            if new_rows:
                session.connection().execute(insert(TrialCallRow), new_rows)
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

    def answer(
        self, study: str, answers: Iterable[GivenAnswer], driver: str | None = None
    ) -> None:
        parameters = [
            {
                "in_study": study,
                "in_job": given.job,
                "in_incarnation": given.incarnation,
                "to_number": given.answer.number,
                "answer": given.answer.text,
            }
            for given in answers
        ]
        if parameters:  # a call whose answer is lost stays unanswered and is answered again
            with self._database.write(may_be_lost=True) as session:
                check_driver(session, study, driver)
                session.connection().execute(_STORE_ANSWER, parameters)

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


def _counted_instance(spec: JobSpec, instance: str) -> str | None:
    """Return the only instance on which a later incarnation supersedes; None if any does."""
    return instance if spec.distributed else None


def _latest_incarnation(session: Session, job: str, instance: str | None = None) -> int:
    """Return the number of the latest incarnation of a job; 0 if none has begun.

    `instance` restricts the search to one instance; None searches all.
    """
    numbers = select(func.max(IncarnationRow.number)).where(IncarnationRow.job == job)
    if instance is not None:
        numbers = numbers.where(IncarnationRow.instance == instance)
    return session.scalar(numbers) or 0
