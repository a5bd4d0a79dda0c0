"""Lines of the ledger that a database is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from autoscaler.domain.spending import LedgerEntry


@contextmanager
def read_lines() -> Iterator[list[LedgerEntry]]:
    """Yield the lines that stores in databases read meanwhile."""
    lines: list[LedgerEntry] = []

    def read(*values: object) -> LedgerEntry:
        lines.append(LedgerEntry(*values))  # type: ignore[arg-type]
        return lines[-1]

    with patch("autoscaler.store.sql.ledger.LedgerEntry", read):
        yield lines
