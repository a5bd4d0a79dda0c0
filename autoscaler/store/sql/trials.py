"""Calls of trials and leases of studies in a database."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from autoscaler.domain.trial import GivenAnswer, TrialAnswer, TrialCall, WaitingCall
from autoscaler.store.database import Database
from autoscaler.store.sql.jobs import job_row
from autoscaler.store.study_schema import IncarnationRow, LeaseRow, TrialCallRow
from autoscaler.store.trials import Leases, Trials, already_driven, refuse_superseded


class SqlTrials(Trials):
    """The tables of incarnations and their calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, job: str, instance: str, started_seconds: float) -> int:
        with self._database.write() as session:
            job_row(session, job)
            latest = _latest(session, job)
            known = select(IncarnationRow.number).where(
                IncarnationRow.job == job,
                IncarnationRow.instance == instance,
                IncarnationRow.started_seconds == started_seconds,
            )
            number = session.scalar(known)
            if number is not None:
                refuse_superseded(job, number, latest)
                return number
            row = IncarnationRow(
                job=job, number=latest + 1, instance=instance, started_seconds=started_seconds
            )
            session.add(row)
            return latest + 1

    def tell(self, job: str, incarnation: int, calls: Iterable[TrialCall]) -> None:
        with self._database.write() as session:
            study = job_row(session, job).spec.study or ""
            refuse_superseded(job, incarnation, _latest(session, job))
            told = {call.number: call for call in calls}
            own = select(TrialCallRow.number).where(
                TrialCallRow.job == job,
                TrialCallRow.incarnation == incarnation,
                TrialCallRow.number.in_(told),
            )
            known = set(session.scalars(own))
            session.add_all(
                TrialCallRow(
                    study=study,
                    job=job,
                    incarnation=incarnation,
                    number=call.number,
                    text=call.text,
                )
                for call in told.values()
                if call.number not in known
            )

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
        with self._database.write() as session:
            for each in answers:
                row = session.scalar(
                    select(TrialCallRow).where(
                        TrialCallRow.job == each.job,
                        TrialCallRow.incarnation == each.incarnation,
                        TrialCallRow.number == each.answer.number,
                        TrialCallRow.answer.is_(None),
                    )
                )
                if row is not None:
                    row.answer = each.answer.text

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


def _latest(session: Session, job: str) -> int:
    """The number of the incarnation that began last; 0 if none has."""
    numbers = select(func.max(IncarnationRow.number)).where(IncarnationRow.job == job)
    return session.scalar(numbers) or 0
