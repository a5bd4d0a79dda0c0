"""Events in a database."""

from __future__ import annotations

from sqlalchemy import delete, select

from autoscaler.store.repositories.events import Event, Events
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.schema import EventRow


class SqlEvents(Events):
    """Repository on the table of events."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, event: Event) -> None:
        with self._database.write() as session:
            row = EventRow()
            row.take(event)
            session.add(row)

    def latest(self, job: str | None = None, limit: int = 100) -> tuple[Event, ...]:
        rows = select(EventRow).order_by(EventRow.id.desc()).limit(limit)
        if job is not None:
            rows = rows.where(EventRow.job == job)
        with self._database.read() as session:
            return tuple(row.to(Event) for row in session.scalars(rows))

    def prune(self, before_seconds: float) -> None:
        with self._database.write() as session:
            session.execute(delete(EventRow).where(EventRow.at_seconds < before_seconds))
