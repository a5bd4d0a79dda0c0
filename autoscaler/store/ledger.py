"""The lines of the ledger. They are written with what the cloud tells, and never changed."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.store.database import Database
from autoscaler.store.schema import InstanceRow, LedgerRow


class LedgerLines:
    """The ledger of one store, to be read; `Instances.observe_cloud` writes it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def entries(self, job: str | None = None) -> tuple[LedgerEntry, ...]:
        """All lines, or those of one job, in the order in which they were written."""
        rows = select(LedgerRow).order_by(LedgerRow.id)
        if job is not None:
            rows = rows.where(LedgerRow.job == job)
        with self._database.read() as session:
            return tuple(row.to(LedgerEntry) for row in session.scalars(rows))


def add_line(session: Session, kind: EntryKind, instance: InstanceRow, at_seconds: float) -> None:
    """Open or close the bill of an instance."""
    session.add(
        LedgerRow(
            kind=kind,
            instance=instance.id,
            job=instance.job,
            offer=instance.offer,
            usd_per_hour=instance.usd_per_hour,
            at_seconds=at_seconds,
            minimum_billed_seconds=instance.minimum_billed_seconds,
        )
    )


def last_line(session: Session, instance: str) -> LedgerRow | None:
    """The line of an instance that was written last: a CLOSE if its bill is closed."""
    lines = select(LedgerRow).where(LedgerRow.instance == instance)
    return session.scalars(lines.order_by(LedgerRow.id.desc()).limit(1)).first()
