"""Deletion of facts that nobody needs any more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

MOST_ROWS: Final = 1000
"""Rows of one table that one call deletes at most, so that no other write waits long."""


class Retention(ABC):
    """Deletion of old rows of one store, in small transactions.

    Kept for good: jobs with their last reports, instances, the ledger, memories of programs,
    studies with their budgets, and the audit log.
    """

    @abstractmethod
    def prune(self, before_seconds: float, most_rows: int = MOST_ROWS) -> bool:
        """Delete some of what ended before a time; return whether a further call may find more.

        - Events, and plans with their decisions and inputs.
        - Of jobs that have ended: calls of trials, failures, measurements, samples and models.
        - Of instances that have ended: finished intents.
        - Expired tokens of instances and of logins, and expired leases of drivers.
        - Progress of trials, once no trial of their study is at work.

        A call deletes at most `most_rows` rows of a table, and gives some free space of the file
        back to its disk.
        """
