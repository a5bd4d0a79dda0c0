"""Repository of the audit log. Rows are only ever added."""

from __future__ import annotations

from abc import ABC, abstractmethod

from autoscaler.domain.audit import AuditEntry


class Audit(ABC):
    """Audit log of one store. It has no method to change or remove a row."""

    @abstractmethod
    def add(self, entry: AuditEntry) -> None:
        """Store a row; it gets the next number."""

    @abstractmethod
    def has(self, action: str, subject: str) -> bool:
        """Return whether there is a row of an action on a subject."""

    @abstractmethod
    def page(
        self, since_seconds: float = 0.0, below: int | None = None, limit: int = 100
    ) -> tuple[AuditEntry, ...]:
        """Return at most `limit` rows since a time, the latest first.

        `below` None: from the latest row on; otherwise rows with lower numbers only.
        """
