"""The lines of the ledger. They are written with what the cloud tells, and never changed."""

from __future__ import annotations

from abc import ABC, abstractmethod

from autoscaler.domain.spending import LedgerEntry


class LedgerLines(ABC):
    """The ledger of one store, to be read; `Instances.observe_cloud` writes it."""

    @abstractmethod
    def entries(self, job: str | None = None) -> tuple[LedgerEntry, ...]:
        """All lines, or those of one job, in the order in which they were written."""
