"""Retention in memory."""

from __future__ import annotations

from autoscaler.store.repositories.events import Events
from autoscaler.store.repositories.journal import Journal
from autoscaler.store.repositories.retention import MOST_ROWS, Retention


class MemoryRetention(Retention):
    """Deletion of events and plans, which grow fastest; a simulation keeps all else to its end."""

    def __init__(self, journal: Journal, events: Events) -> None:
        self._journal = journal
        self._events = events

    def prune(self, before_seconds: float, most_rows: int = MOST_ROWS) -> bool:
        self._journal.prune(before_seconds)
        self._events.prune(before_seconds)
        return False
