"""Leases of studies in a database."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from autoscaler.store.repositories.trials import Leases, already_driven, require_driver
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.study_schema import LeaseRow


class SqlLeases(Leases):
    """Repository on the table of leases."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(
        self, study: str, holder: str, now_seconds: float, seconds: float, renews: bool = False
    ) -> None:
        with self._database.write() as session:
            row = session.get(LeaseRow, study)
            if row is not None and row.holder != holder and row.until_seconds > now_seconds:
                raise already_driven(study, row.holder, row.until_seconds - now_seconds)
            if renews:
                require_driver(study, holder, None if row is None else row.holder)
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


def check_driver(session: Session, study: str | None, driver: str | None) -> None:
    """Check that a driver was the last to take the lease of a study; None: no check.

    In a writing transaction no other driver takes the lease before it ends.

    Raises:
        Conflict: another driver has taken the lease, or nobody has.
    """
    if driver is not None:
        latest = session.scalar(select(LeaseRow.holder).where(LeaseRow.study == study))
        require_driver(study or "", driver, latest)
