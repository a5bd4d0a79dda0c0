"""Exclusive claim of one controller on a store.

A second controller on the same store would launch every instance twice. The claim is a file lock
beside an SQLite database, or an advisory lock of a PostgreSQL session. The claim ends with the
process of its holder. Other processes may read a claimed store.
"""

from __future__ import annotations

import fcntl
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from autoscaler.domain.errors import Conflict, StoreError
from autoscaler.store.sql.database import is_sqlite, parse_url

_CLAIM_LOCK_KEY: Final = 0x0CA5705
_CONNECT_SECONDS: Final = 30
# PostgreSQL releases the claim of a vanished host after about 30 s.
_KEEP_ALIVE_OPTIONS: Final = (
    "-c tcp_keepalives_idle=15 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
)
_MAX_APPLICATION_NAME_BYTES: Final = 63
_HOLDER_QUERY: Final = text(
    "SELECT activity.application_name, activity.client_addr, activity.backend_start"
    " FROM pg_locks AS locks JOIN pg_stat_activity AS activity USING (pid)"
    " WHERE locks.locktype = 'advisory' AND locks.granted AND locks.objid = :key"
    " AND locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class Claim(ABC):
    """Exclusive claim of this process on a store."""

    @abstractmethod
    def check(self) -> None:
        """Check that the claim is still held, and acquire a lost claim again if it is free.

        Raises:
            Conflict: another controller holds the claim now.
            StoreError: the database does not answer.
        """

    @abstractmethod
    def release(self) -> None:
        """Release the claim."""


@contextmanager
def claim_store(url: str, state: Path) -> Iterator[Claim]:
    """Claim the store at `url`, yield the claim, and release it on exit.

    Args:
        url: SQLite or PostgreSQL URL of the store.
        state: state directory of this controller, which a conflict on SQLite names.

    Raises:
        Conflict: another controller holds the claim; the message names that controller.
        StoreError: the URL names no store, its directory is not writable, the SQLite file has
            several hard links, or the database does not answer.
    """
    parsed = parse_url(url)
    holder = f"{socket.gethostname()} pid {os.getpid()}"
    claim: Claim
    if is_sqlite(parsed):
        claim = _FileClaim(Path(parsed.database or ""), f"{holder}, state {state}")
    else:
        claim = _SessionClaim(parsed, holder)
    try:
        yield claim
    finally:
        claim.release()


class _FileClaim(Claim):
    """Lock of a file beside the SQLite database. The kernel releases it when the process ends."""

    def __init__(self, database: Path, holder: str) -> None:
        # All symbolic links to a database must lead to the same lock file.
        path = database.resolve()
        _require_one_link(path)
        self._file = _open_locked(path.with_name(f"{path.name}.controller"), path)
        self._file.seek(0)
        self._file.truncate()
        self._file.write(holder)
        self._file.flush()

    def check(self) -> None:
        """Do nothing: the lock lasts while its file is open."""

    def release(self) -> None:
        self._file.close()


def _require_one_link(path: Path) -> None:
    """Check that the database file has one hard link, since the lock file depends on its name.

    SQLite keeps its write-ahead log beside the name too: two processes that use different names
    damage the database.

    Raises:
        StoreError: the file has several hard links.
    """
    try:
        links = path.stat().st_nlink
    except OSError:  # SQLite creates a missing file, or reports the error, when it opens it
        return
    if links > 1:
        raise StoreError(
            f"store {path} has {links} hard links, and a controller on each would damage it: "
            f"find the names with `find DIR -samefile {path}` and remove the others, or copy the "
            "database"
        )


def _open_locked(path: Path, database: Path) -> IO[str]:
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+")
    except OSError as error:
        raise StoreError(
            f"store {database}: {path.name} can't be written beside it ({error.strerror}): its "
            "directory must exist and be writable"
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = file.read().strip() or "an unnamed process"
        file.close()
        raise _claim_conflict(str(database), holder) from None
    return file


class _SessionClaim(Claim):
    """Advisory lock of a PostgreSQL session. The server releases it with the connection."""

    def __init__(self, url: URL, holder: str) -> None:
        self._name = url.render_as_string(hide_password=True)
        self._engine = _engine(url, holder)
        self._connection: Connection | None = None
        self._acquire()

    def check(self) -> None:
        connection = self._connection
        if connection is not None:
            try:
                connection.execute(text("SELECT 1"))
                return
            except DBAPIError:  # the session has ended, and the server has released its lock
                self._close_connection()
        self._acquire()

    def release(self) -> None:
        if self._connection is not None:
            # The server ends a closed session, and its lock, some time later.
            with suppress(SQLAlchemyError):
                self._connection.execute(text("SELECT pg_advisory_unlock_all()"))
        self._close_connection()
        self._engine.dispose()

    def _acquire(self) -> None:
        try:
            connection = self._engine.connect()
            lock = text("SELECT pg_try_advisory_lock(:key)")
            is_acquired = connection.execute(lock, {"key": _CLAIM_LOCK_KEY}).scalar_one()
            if is_acquired:
                self._connection = connection
                return
            holder = connection.execute(_HOLDER_QUERY, {"key": _CLAIM_LOCK_KEY}).first()
            connection.close()
        except DBAPIError as error:
            message = " ".join(str(error.orig).split())
            raise StoreError(f"store {self._name}: {message}") from error
        holder_text = "a session that has just ended"
        if holder is not None:
            address = holder.client_addr or "this server's host"
            holder_text = (
                f"{holder.application_name} at {address}, since {holder.backend_start:%F %T%z}"
            )
        raise _claim_conflict(self._name, holder_text)

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.close()
        except DBAPIError:
            connection.invalidate()


def _engine(url: URL, holder: str) -> Engine:
    """Return an engine without a pool: each connection is a session named after `holder`."""
    arguments = {
        "connect_timeout": _CONNECT_SECONDS,
        "application_name": f"castor {holder}"[:_MAX_APPLICATION_NAME_BYTES],
        "options": _KEEP_ALIVE_OPTIONS,
    }
    return create_engine(
        url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=arguments
    )


def _claim_conflict(store: str, holder: str) -> Conflict:
    return Conflict(
        f"another controller holds the store {store}: {holder}; stop that controller, or name "
        "another --store"
    )
