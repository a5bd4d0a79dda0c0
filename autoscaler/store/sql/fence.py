"""Fence of a store's writes: only the present leader of the store may write.

Every writing transaction reads the epoch of the lease. A leader that was frozen for longer than
its lease finds another epoch, and writes nothing. In PostgreSQL the row stays locked for sharing
to the end of the transaction, so that no other controller takes over before the commit.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from autoscaler.domain.errors import NotLeading

_SQLITE: Final = "SELECT epoch, 1 FROM leadership WHERE id = 1"
_POSTGRESQL: Final = (
    "SELECT epoch, expires_seconds > extract(epoch FROM clock_timestamp())"
    " FROM leadership WHERE id = 1 FOR SHARE"
)


class WriteFence:
    """Permission of one process to write to a store; `epoch` is None while it does not lead."""

    def __init__(self) -> None:
        self.epoch: int | None = None

    def require_leading(self) -> None:
        """Check, before a transaction begins, that this process leads as far as it knows.

        Raises:
            NotLeading: it does not.
        """
        if self.epoch is None:
            raise NotLeading("this controller does not lead its store, so it writes nothing")

    def check(self, connection: Connection) -> None:
        """Check in a writing transaction that this process still leads the store.

        Raises:
            NotLeading: another process has led since, or the lease is over.
        """
        is_sqlite = connection.dialect.name == "sqlite"
        row = connection.exec_driver_sql(_SQLITE if is_sqlite else _POSTGRESQL).first()
        epoch, is_valid = (None, False) if row is None else row
        if epoch != self.epoch:
            raise NotLeading(
                f"another controller has led the store since: its epoch is {epoch}, and this one "
                f"led in epoch {self.epoch}"
            )
        if not is_valid:
            raise NotLeading("this controller's lease of the store is over until it is renewed")
