"""Audit log in memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from autoscaler.domain.audit import AuditEntry
from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.audit import Audit


class MemoryAudit(Audit):
    """Rows in order of their numbers, which begin at 1."""

    def __init__(self, tables: Tables) -> None:
        self._lock = tables.lock
        self._rows: list[AuditEntry] = []
        self._actions: set[tuple[str, str]] = set()

    def add(self, entry: AuditEntry) -> None:
        with self._lock:
            self._rows.append(replace(entry, number=len(self._rows) + 1))
            self._actions.add((entry.action, entry.subject))

    def has(self, action: str, subject: str) -> bool:
        with self._lock:
            return (action, subject) in self._actions

    def page(
        self, since_seconds: float = 0.0, below: int | None = None, limit: int = 100
    ) -> tuple[AuditEntry, ...]:
        with self._lock:
            rows = self._rows if below is None else self._rows[: max(below - 1, 0)]
            recent = (row for row in reversed(rows) if row.at_seconds >= since_seconds)
            return tuple(islice(recent, limit))
