"""Audit log in a database."""

from __future__ import annotations

from sqlalchemy import select

from autoscaler.domain.audit import AuditEntry
from autoscaler.store.repositories.audit import Audit
from autoscaler.store.sql.access_schema import AuditRow
from autoscaler.store.sql.database import Database


class SqlAudit(Audit):
    """Repository on the table of the audit log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, entry: AuditEntry) -> None:
        with self._database.write() as session:
            row = AuditRow()
            row.take(entry, but="number")
            session.add(row)

    def has(self, action: str, subject: str) -> bool:
        numbers = select(AuditRow.number).where(
            AuditRow.subject == subject, AuditRow.action == action
        )
        with self._database.read() as session:
            return session.scalar(numbers.limit(1)) is not None

    def page(
        self, since_seconds: float = 0.0, below: int | None = None, limit: int = 100
    ) -> tuple[AuditEntry, ...]:
        rows = select(AuditRow).where(AuditRow.at_seconds >= since_seconds)
        if below is not None:
            rows = rows.where(AuditRow.number < below)
        with self._database.read() as session:
            latest = session.scalars(rows.order_by(AuditRow.number.desc()).limit(limit))
            return tuple(row.to(AuditEntry) for row in latest)
