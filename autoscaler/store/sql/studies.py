"""Terms of studies and records of their trials, in a database."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from sqlalchemy import select

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord
from autoscaler.store.repositories.studies import (
    StatedTerms,
    StudyBook,
    TermsCheck,
    accept_terms,
    after,
    unknown_study,
)
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.jobs import job_row
from autoscaler.store.sql.leases import check_driver
from autoscaler.store.sql.study_schema import StudyRow, TrialRow


class SqlStudyBook(StudyBook):
    """Repository on the tables of studies and of their trials."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def state(self, study: str, terms: StudyTerms, driver: str | None = None) -> None:
        with self._database.write() as session:
            check_driver(session, study, driver)
            row = session.get(StudyRow, study)
            if row is None:
                session.add(StudyRow(name=study, terms=terms))
                return
            row.take(row.to(StatedTerms).stated(terms))

    def names(self) -> tuple[str, ...]:
        with self._database.read() as session:
            return tuple(sorted(session.scalars(select(StudyRow.name))))

    def set_budget(
        self, study: str, budget_usd: Decimal, precondition: TermsCheck = accept_terms
    ) -> StudyTerms:
        with self._database.write() as session:
            row = session.get(StudyRow, study)
            if row is None:
                raise unknown_study(study)
            before = row.to(StatedTerms).in_force
            precondition(before)
            row.budget_usd = budget_usd
            return before

    def terms(self, study: str) -> StudyTerms | None:
        with self._database.read() as session:
            row = session.get(StudyRow, study)
            return None if row is None else row.to(StatedTerms).in_force

    def tell(
        self,
        study: str,
        told: Iterable[tuple[TrialProgress, Allocation | None]],
        now_seconds: float,
        driver: str | None = None,
    ) -> None:
        statements = {stands.job: (stands, trained) for stands, trained in told}
        with self._database.write() as session:
            check_driver(session, study, driver)
            known_rows = {
                row.job: row
                for row in session.scalars(select(TrialRow).where(TrialRow.job.in_(statements)))
            }
            for job, (stands, trained) in statements.items():
                row = known_rows.get(job)
                if row is None:
                    job_row(session, job)
                    row = TrialRow(study=study, job=job)
                    session.add(row)
                row.record = after(row.record, stands, trained, now_seconds)

    def trials(self, study: str) -> tuple[TrialRecord, ...]:
        rows = select(TrialRow).where(TrialRow.study == study).order_by(TrialRow.id)
        with self._database.read() as session:
            return tuple(row.record for row in session.scalars(rows))
