"""Ledger in a database."""

from __future__ import annotations

from sqlalchemy import select

from autoscaler.domain.spending import LedgerEntry
from autoscaler.store.repositories.ledger import LedgerLines
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.schema import LedgerRow


class SqlLedgerLines(LedgerLines):
    """Repository on the table of the ledger."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def entries(self, job: str | None = None) -> tuple[LedgerEntry, ...]:
        rows = select(LedgerRow).order_by(LedgerRow.id)
        if job is not None:
            paid_instances = select(LedgerRow.instance).where(LedgerRow.job == job)
            rows = rows.where(LedgerRow.instance.in_(paid_instances))
        with self._database.read() as session:
            return tuple(row.to(LedgerEntry) for row in session.scalars(rows))
