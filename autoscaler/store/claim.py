"""Claim of one controller on a store: a second controller would order everything twice.

The claim is a lock that ends with its holder's process: of a file beside a database of SQLite, of
a session of PostgreSQL. Other processes may read a claimed store.
"""

from __future__ import annotations

import fcntl
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError

from autoscaler.domain.errors import Conflict, StoreError
from autoscaler.store.database import is_sqlite, parse_url

_CLAIM_LOCK: Final = 0x0CA5705
_CONNECT_SECONDS: Final = 30
# A host that vanished frees its claim after about half a minute.
_KEEP_ALIVE: Final = (
    "-c tcp_keepalives_idle=15 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
)
_LONGEST_NAME: Final = 63
_HOLDER: Final = text(
    "SELECT activity.application_name, activity.client_addr, activity.backend_start"
    " FROM pg_locks AS locks JOIN pg_stat_activity AS activity USING (pid)"
    " WHERE locks.locktype = 'advisory' AND locks.granted AND locks.objid = :key"
    " AND locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class Claim(ABC):
    """The claim of this process on a store."""

    @abstractmethod
    def check(self) -> None:
        """Check that the claim is still held, and take a lost one again if nobody has it.

        Raises:
            Conflict: another controller has the store now.
            StoreError: the database does not answer.
        """

    @abstractmethod
    def release(self) -> None:
        """Give the store up."""


@contextmanager
def claim_store(url: str, state: Path) -> Iterator[Claim]:
    """Claim the store at `url` for the controller whose state directory is `state`.

    Raises:
        Conflict: another controller has it; the error names that one.
        StoreError: the URL names no store, or the database does not answer.
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
    """A lock of a file beside the database. The kernel drops it when the process ends."""

    def __init__(self, database: Path, holder: str) -> None:
        # One database has one path here, whatever links lead to it.
        path = database.resolve()
        _require_one_link(path)
        self._file = _locked(path.with_name(f"{path.name}.controller"), path)
        self._file.seek(0)
        self._file.truncate()
        self._file.write(holder)
        self._file.flush()

    def check(self) -> None:
        """Do nothing: the lock lasts as long as its file is open."""

    def release(self) -> None:
        self._file.close()


def _require_one_link(path: Path) -> None:
    """Check that a database has no other name, beside which the lock would be another file.

    SQLite keeps its log beside the name too: two processes with two names damage the database.

    Raises:
        StoreError: it has several hard links.
    """
    try:
        links = path.stat().st_nlink
    except OSError:  # it is made when it is opened, or it can't be
        return
    if links > 1:
        raise StoreError(
            f"store {path} has {links} hard links, and a controller on each would damage it: "
            f"find the names with `find DIR -samefile {path}` and remove the others, or copy the "
            "database"
        )


def _locked(path: Path, database: Path) -> IO[str]:
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
        holder = file.read().strip() or "a process that it does not name"
        file.close()
        raise _held_by(str(database), holder) from None
    return file


class _SessionClaim(Claim):
    """An advisory lock of a session of PostgreSQL. The server drops it with its connection."""

    def __init__(self, url: URL, holder: str) -> None:
        self._name = url.render_as_string(hide_password=True)
        self._engine = _engine(url, holder)
        self._connection: Connection | None = None
        self._take()

    def check(self) -> None:
        connection = self._connection
        if connection is not None:
            try:
                connection.execute(text("SELECT 1"))
                return
            except DBAPIError:  # the session has ended, and its lock with it
                self._drop()
        self._take()

    def release(self) -> None:
        self._drop()
        self._engine.dispose()

    def _take(self) -> None:
        try:
            connection = self._engine.connect()
            lock = text("SELECT pg_try_advisory_lock(:key)")
            is_ours = connection.execute(lock, {"key": _CLAIM_LOCK}).scalar_one()
            if is_ours:
                self._connection = connection
                return
            holder = connection.execute(_HOLDER, {"key": _CLAIM_LOCK}).first()
            connection.close()
        except DBAPIError as error:
            words = " ".join(str(error.orig).split())
            raise StoreError(f"store {self._name}: {words}") from error
        named = "a session that has just ended"
        if holder is not None:
            address = holder.client_addr or "this server's host"
            named = f"{holder.application_name} at {address}, since {holder.backend_start:%F %T%z}"
        raise _held_by(self._name, named)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.close()
        except DBAPIError:
            connection.invalidate()


def _engine(url: URL, holder: str) -> Engine:
    """Return an engine whose connections are sessions of their own, named after `holder`."""
    arguments = {
        "connect_timeout": _CONNECT_SECONDS,
        "application_name": f"castor {holder}"[:_LONGEST_NAME],
        "options": _KEEP_ALIVE,
    }
    return create_engine(
        url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=arguments
    )


def _held_by(store: str, holder: str) -> Conflict:
    return Conflict(
        f"another controller has the store {store}: {holder}; stop that one, or name another "
        "--store"
    )
