"""The lines of the ledger. They are written with what the cloud tells, and never changed."""

from __future__ import annotations

from abc import ABC, abstractmethod

from autoscaler.domain.spending import LedgerEntry


class LedgerLines(ABC):
    """The ledger of one store, to be read; `Instances.observe_cloud` writes it."""

    @abstractmethod
    def entries(self, job: str | None = None) -> tuple[LedgerEntry, ...]:
        """All lines, or those of the instances that a job has ever paid for.

        They come in the order in which they were written. What other jobs paid for these
        instances is among them: what one of them owes is known from the whole bill only.
        """
