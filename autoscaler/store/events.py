"""What happened, in words for a person: an instance lost, a launch refused, an orphan found."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, select

from autoscaler.store.database import Database
from autoscaler.store.schema import EventRow


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a job, or to the fleet where `job` is None."""

    at_seconds: float
    kind: str
    text: str
    job: str | None = None


class Events:
    """The events of one store; they are only added, and forgotten when they are old."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, event: Event) -> None:
        """Keep an event."""
        with self._database.write() as session:
            session.add(
                EventRow(
                    at_seconds=event.at_seconds, kind=event.kind, text=event.text, job=event.job
                )
            )

    def latest(self, job: str | None = None, limit: int = 100) -> tuple[Event, ...]:
        """The last events of one job, or of everything, the latest first."""
        rows = select(EventRow).order_by(EventRow.id.desc()).limit(limit)
        if job is not None:
            rows = rows.where(EventRow.job == job)
        with self._database.read() as session:
            return tuple(row.to(Event) for row in session.scalars(rows))

    def prune(self, before_seconds: float) -> None:
        """Forget the events before then."""
        with self._database.write() as session:
            session.execute(delete(EventRow).where(EventRow.at_seconds < before_seconds))
