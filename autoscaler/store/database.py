"""Connections and transactions of SQLite and PostgreSQL, made to behave alike.

Writers take turns: SQLite has one at a time by nature (`BEGIN IMMEDIATE`), PostgreSQL by an
advisory lock that each writing transaction holds to its end. What a writer reads is therefore
still true when it commits, and no transaction has to be tried again. A reader sees one moment of
the whole store, and neither waits for a writer nor holds one up.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, TimeoutError
from sqlalchemy.orm import Session

from autoscaler.domain.errors import StoreError

_PATIENCE_SECONDS = 30
_WRITES = "castor_writes"
_WRITERS_LOCK = 0x0CA5704
_FORMS = "say sqlite:////path/to/castor.db or postgresql://user@host/database"
# What a person can do about what databases refuse, by a part of their words.
_WAYS_OUT = (
    ("unable to open database file", "its directory must exist and be writable"),
    ("readonly database", "the file and its directory must be writable"),
    ("file is not a database", "name another path, or restore it from a copy"),
    ("malformed", "restore it from a copy"),
    ("disk is full", "free some space on its disk"),
    ("No space left", "free some space on its disk"),
    ("database is locked", f"another process has been writing for {_PATIENCE_SECONDS} s"),
    ("lock timeout", f"another process has been writing for {_PATIENCE_SECONDS} s"),
)


class Database:
    """One database, safe to share between threads; other processes may have it open too."""

    def __init__(self, url: str) -> None:
        """Prepare connections to `url`; none is made yet.

        Raises:
            StoreError: the URL names no file of SQLite and no database of PostgreSQL.
        """
        parsed = parse_url(url)
        self.name = parsed.render_as_string(hide_password=True)
        self._engine = _sqlite(parsed) if is_sqlite(parsed) else _postgresql(parsed)
        self._writer = self._engine.execution_options(**{_WRITES: True})
        hasty = _sqlite(parsed, "NORMAL") if is_sqlite(parsed) else self._engine
        self._hasty_writer = hasty.execution_options(**{_WRITES: True})
        self._turn = threading.Lock()

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that sees one moment of the store.

        Raises:
            StoreError: the database refused, or did not answer.
        """
        with self._errors(), Session(self._engine) as session:
            yield session

    @contextmanager
    def write(self, may_be_lost: bool = False) -> Iterator[Session]:
        """A transaction that commits at its end, or not at all. It must be short, and not nested.

        One that `may_be_lost` is not synced in SQLite: a power cut may undo it with all after it
        that were not synced either, as if it had never been.

        Raises:
            StoreError: the database refused, or did not answer; nothing was changed, except
                perhaps where the connection broke during the commit itself.
        """
        writer = self._hasty_writer if may_be_lost else self._writer
        with self._turn, self._errors(), Session(writer) as session, session.begin():
            yield session

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._engine.dispose()
        self._hasty_writer.dispose()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, TimeoutError) as error:
            said = " ".join(str(getattr(error, "orig", None) or error).split())
            raise StoreError(f"store {self.name}: {said}{_way_out(said)}") from error


def parse_url(url: str) -> URL:
    """Return the URL of a store with the driver that Castor uses.

    Raises:
        StoreError: it names no file of SQLite and no database of PostgreSQL.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError(f"the URL of the store can't be read: {_FORMS}") from error
    if parsed.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if not is_sqlite(parsed):
        raise StoreError(f"store {parsed.drivername}: not a database Castor knows: {_FORMS}")
    if not parsed.database or parsed.database == ":memory:":
        raise StoreError(f"store {url}: a store in memory would be lost: {_FORMS}")
    return parsed


def is_sqlite(url: URL) -> bool:
    """Return whether a URL of `parse_url` names a file of SQLite."""
    return url.get_backend_name() == "sqlite"


def _sqlite(url: URL, synchronous: str = "FULL") -> Engine:
    path = Path(url.database or "").absolute()
    engine = create_engine(
        url.set(database=str(path)), connect_args={"timeout": _PATIENCE_SECONDS}
    )

    @event.listens_for(engine, "do_connect")
    def own_file(*_: object) -> None:
        # Only the owner may read it: it holds what jobs say of themselves. SQLite gives the files
        # beside it the same rights. What goes wrong here SQLite itself tells in a moment. A file
        # that is there must not be opened: to close it again would drop the locks of all our
        # connections, and another process that closes the store would throw our writes away.
        with suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _: object) -> None:
        # Transactions are begun below, not by the driver, which begins them too late.
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        # An intent must outlive a power cut before its call is made, so commits are synced.
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql(url: URL) -> Engine:
    arguments = {
        "connect_timeout": _PATIENCE_SECONDS,
        "options": f"-c lock_timeout={_PATIENCE_SECONDS}s",
    }
    engine = create_engine(url, pool_pre_ping=True, connect_args=arguments)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get(_WRITES):
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITERS_LOCK})")
        else:
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

    return engine


def _way_out(said: str) -> str:
    return next((f"; {way_out}" for sign, way_out in _WAYS_OUT if sign in said), "")
