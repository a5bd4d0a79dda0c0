"""Ledger of costs. Lines are written with reports of the cloud, and never changed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection

from autoscaler.domain.spending import LedgerEntry


class LedgerLines(ABC):
    """Read access to the ledger of one store, which the methods of `Instances` write."""

    @abstractmethod
    def after(self, number: int) -> tuple[tuple[LedgerEntry, ...], int]:
        """Return the lines written since a call that returned `number`, and the next number.

        With 0 all lines. Lines are in order of writing.
        """

    @abstractmethod
    def entries(self, job: str | None = None) -> tuple[LedgerEntry, ...]:
        """Return all lines, or all lines of the instances that a job has ever paid for.

        Lines are in order of writing. The lines of a job include payments of other jobs for the
        same instances: the cost of one job follows only from the whole bill.
        """

    @abstractmethod
    def of_jobs(self, jobs: Collection[str]) -> tuple[LedgerEntry, ...]:
        """Return all lines of the instances that any of these jobs has ever paid for."""
