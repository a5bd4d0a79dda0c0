"""Lease of the one controller that leads a store.

Two controllers on one store would launch every instance twice. The lease is a row with an epoch,
by the clock of the database: every leader has a later epoch than the one before. `WriteFence` lets
only the leader of the present epoch write. No database fences a cloud, so a leader asks
`require_lease` before each call; launches also have tokens, so that a repeated call launches
nothing.

An SQLite database has a file lock besides, which lasts as long as its process, and a lease without
an end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError

from autoscaler.clock import Clock
from autoscaler.domain.errors import Conflict, NotLeading, StoreError
from autoscaler.store.sql.database import (
    WRITER_IDLE_SECONDS,
    connection_arguments,
    driver_message,
    is_sqlite,
    parse_url,
)
from autoscaler.store.sql.fence import WriteFence
from autoscaler.store.sql.sessions import require_sessions

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

LEASE_SECONDS: Final = 6.0
_RENEWALS_PER_LEASE: Final = 5.0
# A call to a cloud begins only if the lease lasts for this long.
_CALL_MARGIN_SECONDS: Final = 2.0
_NOW: Final = "extract(epoch FROM clock_timestamp())"
_ADD_ROW: Final = text(
    "INSERT INTO leadership (id, epoch, holder, address, expires_seconds)"
    " VALUES (1, 0, '', '', 0) ON CONFLICT (id) DO NOTHING"
)
_ACQUIRE: Final = text(
    "UPDATE leadership SET epoch = epoch + 1, holder = :holder, address = :address,"
    f" expires_seconds = {_NOW} + :lease_seconds"
    f" WHERE id = 1 AND expires_seconds <= {_NOW} RETURNING epoch"
)
_RENEW: Final = text(
    f"UPDATE leadership SET expires_seconds = {_NOW} + :lease_seconds"
    " WHERE id = 1 AND epoch = :epoch RETURNING epoch"
)
_RELEASE: Final = text("UPDATE leadership SET expires_seconds = 0 WHERE id = 1 AND epoch = :epoch")
_LEADER: Final = text(
    f"SELECT holder, address, epoch, expires_seconds - {_NOW} AS left_seconds"
    " FROM leadership WHERE id = 1"
)
_ACQUIRE_SQLITE: Final = text(
    "UPDATE leadership SET epoch = epoch + 1, holder = :holder, address = :address"
    " WHERE id = 1 RETURNING epoch"
)


@dataclass(frozen=True, slots=True)
class LeaseCandidate:
    """A process that may lead: its name for people, and the address of its API."""

    holder: str
    address: str


@dataclass(frozen=True, slots=True)
class Leader:
    """The last leader of a store. Its lease is over if `left_seconds` is not positive."""

    holder: str
    address: str
    epoch: int
    left_seconds: float


def passed_seconds() -> float:
    """Return the seconds since the start of the machine; also those in which it was suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Leadership:
    """Lease of a store, as one process sees it. `fence` permits writes while it leads.

    `passed_seconds` counts the time of the lease in this process.
    """

    def __init__(
        self,
        url: str,
        candidate: LeaseCandidate,
        fence: WriteFence,
        lease_seconds: float = LEASE_SECONDS,
        passed_seconds: Callable[[], float] = passed_seconds,
    ) -> None:
        """Prepare connections to the store's database, whose tables exist.

        Raises:
            StoreError: the database does not answer, or is behind a pooler of transactions.
        """
        parsed = parse_url(url)
        self.store_name = parsed.render_as_string(hide_password=True)
        self._has_end = not is_sqlite(parsed)
        self._candidate = candidate
        self._fence = fence
        self._lease_seconds = lease_seconds
        self._passed_seconds = passed_seconds
        self._valid_until_seconds = float("-inf")
        self._is_lost = False
        arguments = connection_arguments(lease_seconds / 2, lease_seconds / 2, WRITER_IDLE_SECONDS)
        self._engine: Engine = create_engine(
            parsed,
            poolclass=NullPool,
            connect_args=arguments if self._has_end else {"timeout": lease_seconds},
        )
        if self._has_end:
            require_sessions(self._engine, self.store_name)

    @property
    def is_lost(self) -> bool:
        """Whether this process has led, and another one has led since."""
        return self._is_lost

    @property
    def renewal_seconds(self) -> float:
        """The time between two renewals of the lease, and between two attempts to get it."""
        return self._lease_seconds / _RENEWALS_PER_LEASE

    def acquire(self) -> bool:
        """Acquire the lease if no other process holds it; return whether this one leads now.

        Raises:
            StoreError: the database does not answer.
        """
        asked_seconds = self._passed_seconds()
        values: dict[str, object] = {
            "holder": self._candidate.holder,
            "address": self._candidate.address,
        }
        if self._has_end:
            values["lease_seconds"] = self._lease_seconds
        epoch = self._in_transaction(lambda connection: self._acquired_epoch(connection, values))
        if epoch is None:
            return False
        self._fence.epoch = epoch
        self._extend(asked_seconds)
        return True

    def renew(self) -> None:
        """Extend the lease. One that is over is extended too, if nobody has led since.

        Raises:
            NotLeading: another process has led since. This one writes and calls nothing more.
            StoreError: the database does not answer.
        """
        if not self._has_end:
            return
        asked_seconds = self._passed_seconds()
        values = {"epoch": self._fence.epoch, "lease_seconds": self._lease_seconds}
        epoch = self._in_transaction(
            lambda connection: connection.execute(_RENEW, values).scalar()
        )
        if epoch is None:
            self._lose()
            raise NotLeading(f"another controller leads the store {self.store_name} now")
        self._extend(asked_seconds)

    def keep(self, stopped: threading.Event, on_loss: Callable[[NotLeading], None]) -> None:
        """Renew the lease until `stopped` is set or it is lost; then call `on_loss`."""
        while not stopped.wait(self.renewal_seconds):
            try:
                self.renew()
            except NotLeading as error:
                on_loss(error)
                return
            except StoreError as error:
                _log.warning("the lease is not renewed: %s", error)

    def require_lease(self, margin_seconds: float = _CALL_MARGIN_SECONDS) -> None:
        """Check, without asking the database, that the lease lasts for `margin_seconds`.

        Raises:
            NotLeading: it does not, or it was lost.
        """
        if self._is_lost or self._fence.epoch is None:
            raise NotLeading("this controller does not lead its store, so it calls no cloud")
        left_seconds = self._valid_until_seconds - self._passed_seconds()
        if left_seconds < margin_seconds:
            raise NotLeading(
                f"this controller's lease ends in {max(left_seconds, 0.0):.1f} s, and a call to a "
                f"cloud needs {margin_seconds:g} s"
            )

    def leader(self) -> Leader | None:
        """Return the last leader; None if there was none.

        Raises:
            StoreError: the database does not answer.
        """
        if not self._has_end:
            return None
        row = self._in_transaction(lambda connection: connection.execute(_LEADER).first())
        if row is None or row.epoch == 0:
            return None
        return Leader(row.holder, row.address, row.epoch, float(row.left_seconds))

    def release(self) -> None:
        """End the lease, so that another process can lead at once."""
        epoch, self._fence.epoch = self._fence.epoch, None
        if self._has_end and epoch is not None and not self._is_lost:
            try:
                self._in_transaction(
                    lambda connection: connection.execute(_RELEASE, {"epoch": epoch})
                )
            except StoreError as error:
                _log.warning("the lease is not released, and ends by itself: %s", error)
        self._engine.dispose()

    def _acquired_epoch(self, connection: Connection, values: dict[str, object]) -> int | None:
        connection.execute(_ADD_ROW)
        if not self._has_end:
            return connection.execute(_ACQUIRE_SQLITE, values).scalar()
        return connection.execute(_ACQUIRE, values).scalar()

    def _extend(self, asked_seconds: float) -> None:
        lasts_seconds = self._lease_seconds if self._has_end else float("inf")
        self._valid_until_seconds = asked_seconds + lasts_seconds

    def _lose(self) -> None:
        self._is_lost, self._fence.epoch = True, None

    def _in_transaction(self, act: Callable[[Connection], Result]) -> Result:
        try:
            with self._engine.begin() as connection:
                return act(connection)
        except DBAPIError as error:
            raise StoreError(f"store {self.store_name}: {driver_message(error)}") from error


def acquire_free(leadership: Leadership, clock: Clock) -> None:
    """Acquire the lease; wait for the end of one that nobody renews.

    Raises:
        Conflict: another controller renews its lease. The message names it.
        StoreError: the database does not answer.
    """
    before, interval = None, leadership.renewal_seconds
    while not leadership.acquire():
        leader = leadership.leader()
        if leader is not None and before is not None and _is_renewed(before, leader, interval):
            raise Conflict(
                f"another controller holds the store {leadership.store_name}: {leader.holder}, "
                f"at {leader.address}; stop that controller, name another --store, or start this "
                "one with --follow"
            )
        before = leader
        clock.sleep(interval)


def _is_renewed(before: Leader, leader: Leader, interval: float) -> bool:
    """Return whether a leader has renewed its lease in the interval between two looks."""
    left_seconds = before.left_seconds - interval / 2
    return leader.epoch != before.epoch or leader.left_seconds > left_seconds
