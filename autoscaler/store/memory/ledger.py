"""Ledger in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from autoscaler.domain.spending import LedgerEntry
from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.ledger import LedgerLines, may_be_of_period


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

    def of_period(
        self, jobs: Collection[str], from_seconds: float, until_seconds: float
    ) -> tuple[LedgerEntry, ...]:
        lines, paid = self.of_jobs(jobs), defaultdict[str, list[LedgerEntry]](list)
        for line in lines:
            if line.job in jobs:
                paid[line.instance].append(line)
        of_period = {
            instance
            for instance, of_jobs in paid.items()
            if may_be_of_period(of_jobs, from_seconds, until_seconds)
        }
        return tuple(line for line in lines if line.instance in of_period)
