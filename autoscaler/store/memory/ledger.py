"""Ledger in memory."""

from __future__ import annotations

from collections.abc import Collection

from autoscaler.domain.spending import LedgerEntry
from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.ledger import LedgerLines


class MemoryLedgerLines(LedgerLines):
    """Ledger lines of the shared tables, which `MemoryInstances` writes."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def after(self, number: int) -> tuple[tuple[LedgerEntry, ...], int]:
        with self._tables.lock:
            lines = self._tables.lines
            return tuple(lines[number:]), len(lines)

    def entries(self, job: str | None = None) -> tuple[LedgerEntry, ...]:
        tables = self._tables
        with tables.lock:
            return tuple(tables.lines if job is None else tables.lines_of({job}))

    def of_jobs(self, jobs: Collection[str]) -> tuple[LedgerEntry, ...]:
        with self._tables.lock:
            return tuple(self._tables.lines_of(jobs))
