"""Connections and transactions of SQLite and PostgreSQL, with the same behaviour on both.

Writing transactions are serialized: by `BEGIN IMMEDIATE` in SQLite, by an advisory lock held to
the end of the transaction in PostgreSQL. The data that a writer reads is therefore unchanged when
it commits, and no transaction needs a retry. A reader sees a consistent snapshot of the whole
store, and readers and writers do not block each other.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, TimeoutError
from sqlalchemy.orm import Session

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import StoreError
from autoscaler.store.sql.cache import (
    LiveRecords,
    StoreCache,
    after_commit,
    committed,
    undone_on_error,
)
from autoscaler.store.sql.fence import WriteFence

Value = TypeVar("Value")

_log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 30
_WAL_RETRY_SECONDS = 0.01
# A writing transaction whose client is frozen or gone is ended after this time, with its locks. It
# is shorter than the lease of a leader, so that a follower need not wait. A reading transaction
# locks nobody out, and may take its time with many rows.
WRITER_IDLE_SECONDS = 4
_READER_IDLE_SECONDS = 600
# A statement that waits for locks is limited by `_TIMEOUT_SECONDS`.
_STATEMENT_SECONDS = 60
# A vanished host is noticed by both sides after this time.
_VANISHED_SECONDS = 10
_WRITES_OPTION = "castor_writes"
_WRITERS_LOCK_KEY = 0x0CA5704
_URL_HELP = "use sqlite:////path/to/castor.db or postgresql://user@host/database"
# Remedies for errors of databases: (part of the error message, remedy).
_REMEDIES = (
    ("unable to open database file", "its directory must exist and be writable"),
    ("readonly database", "the file and its directory must be writable"),
    ("file is not a database", "name another path, or restore it from a copy"),
    ("malformed", "restore it from a copy"),
    ("disk is full", "free some space on its disk"),
    ("No space left", "free some space on its disk"),
    ("database is locked", f"another process has been writing for {_TIMEOUT_SECONDS} s"),
    ("lock timeout", f"another process has been writing for {_TIMEOUT_SECONDS} s"),
)


class Database:
    """One database. Threads may share this object; other processes may open the database too."""

    def __init__(self, url: str, reads_only: bool = False) -> None:
        """Prepare connections to `url`, without connecting yet.

        Once `fence` is set, only the leader of the store can write. With `reads_only` nobody can,
        and an SQLite file must exist.

        Raises:
            StoreError: the URL names neither an SQLite file nor a PostgreSQL database.
        """
        parsed = parse_url(url)
        self.name = parsed.render_as_string(hide_password=True)
        if is_sqlite(parsed):
            self._engine = _read_sqlite(parsed) if reads_only else _sqlite(parsed)
        else:
            self._engine = _postgresql(parsed)
        self._writer = self._engine.execution_options(**{_WRITES_OPTION: True})
        unsynced = _sqlite(parsed, "NORMAL") if is_sqlite(parsed) else self._engine
        self._unsynced_writer = unsynced.execution_options(**{_WRITES_OPTION: True})
        self._write_lock = threading.Lock()
        self._groups = threading.local()
        self.fence: WriteFence | None = WriteFence() if reads_only else None
        self.cache = StoreCache()
        self._live: list[LiveRecords[Any]] = []
        self._may_commit_late = False  # a commit has failed here, and its server may still do it

    @property
    def epoch(self) -> int | None:
        """Epoch in which this process leads the store, and keeps in memory what it reads.

        None if it does not lead, need not, or does not know what the store holds.
        """
        return None if self.fence is None or self._may_commit_late else self.fence.epoch

    def cached(self, key: Hashable, load: Callable[[Session], Value]) -> Value:
        """Return what `load` reads, from memory if this process leads and it has not changed."""

        def read() -> Value:
            with self.read() as session:
                return load(session)

        if self._group_session is not None:  # what it reads may never be committed
            return read()
        return self.cache.get(self.epoch, key, read)

    def cached_of_kind(
        self,
        kind: str,
        name: str,
        others: Callable[[], Iterable[str]],
        load: Callable[[Session, Sequence[str]], Mapping[str, Value]],
    ) -> Value:
        """Return the value of one kind of a name, as `cached` does, with its key (kind, name).

        If it is not in memory, `load` reads it together with those of `others` that are not.
        """

        def read(names: Sequence[str]) -> Mapping[str, Value]:
            with self.read() as session:
                return load(session, names)

        if self._group_session is not None:  # what it reads may never be committed
            return read((name,))[name]
        return self.cache.get_of_kind(self.epoch, kind, name, others, read)

    def drop_after_commit(self, session: Session, *keys: Hashable) -> None:
        """Drop values of `cached` once the transaction that changes them has been committed."""
        after_commit(session, lambda: self.cache.drop(*keys))

    def live(self, records: LiveRecords[Any], load: Callable[[Session], Iterable[Any]]) -> bool:
        """Return whether live records are in memory, after they are read if this process leads."""
        epoch = self.epoch
        if epoch is None:
            return False
        if not records.is_loaded(epoch):
            if self._group_session is not None:  # it holds the lock
                return False
            with self._write_lock, self.read() as session:
                if not records.is_loaded(epoch):
                    records.load(epoch, load(session))
                    if records not in self._live:
                        self._live.append(records)
        return True

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Yield a reading transaction, which sees a consistent snapshot of the store.

        Raises:
            StoreError: the database refused, or did not answer.
        """
        written = self._group_session
        if written is not None:
            with self._errors():
                yield written
            return
        with self._errors(), Session(self._engine) as session:
            yield session

    @contextmanager
    def write(self, may_be_lost: bool = False) -> Iterator[Session]:
        """Yield a writing transaction, which commits on exit and rolls back on an error.

        Transactions must be short and not nested. In `grouped`, the commit waits for that of the
        group. SQLite does not sync a transaction that `may_be_lost`: a power cut may undo it,
        together with later unsynced transactions.

        Raises:
            NotLeading: this process does not lead the store. Nothing has changed.
            StoreError: the database refused, or did not answer. Nothing has changed, unless the
                connection broke during the commit.
        """
        group = self._group
        if group is None:
            with self._transaction(may_be_lost) as session:
                yield session
            return
        begin = partial(self._transaction, may_be_lost=False)
        with self._errors(), group.part(begin) as session:
            yield session

    @contextmanager
    def grouped(self) -> Iterator[None]:
        """Commit the writing transactions that this thread makes in the context as one.

        Each is rolled back on its own error. Values in memory change with the commit, at the end
        of the context; until then, they are those of the state before.

        Raises:
            NotLeading, StoreError: as `write`. None of the transactions has changed anything.
        """
        with ExitStack() as stack:
            self._groups.open = _Group(stack)
            try:
                yield
            finally:
                self._groups.open = None

    @property
    def _group(self) -> _Group | None:
        """The group of this thread, None outside of `grouped`."""
        group: _Group | None = getattr(self._groups, "open", None)
        return group

    @property
    def _group_session(self) -> Session | None:
        """The transaction of this thread's group; None if it has written nothing."""
        group = self._group
        return None if group is None else group.session

    @contextmanager
    def _transaction(self, may_be_lost: bool) -> Iterator[Session]:
        writer = self._unsynced_writer if may_be_lost else self._writer
        fence = self.fence
        if fence is not None:
            fence.require_leading()
        with self._write_lock, self._errors(), Session(writer) as session:
            with session.begin() as transaction:
                if fence is not None:
                    fence.check(session.connection())
                    self._note_end_of_writers()
                yield session
                try:
                    transaction.commit()
                except BaseException:  # what is stored now, and soon, is unknown
                    self._may_commit_late = True
                    self._forget()
                    raise
            committed(session)

    def let_shrink(self) -> None:
        """Rewrite an SQLite file of an earlier release, so that it can give back free space.

        This needs as much free disk as the file has bytes, twice. Without that room, or while
        another process uses the file, it stays as it is: new rows reuse its free space.
        """
        path = self._engine.url.database
        if self._engine.dialect.name != "sqlite" or path is None:
            return
        with closing(sqlite3.connect(path, timeout=0.0)) as connection:
            if connection.execute("PRAGMA auto_vacuum").fetchone()[0] != 0:
                return
            needed_bytes = 2 * Path(path).stat().st_size
            free_bytes = shutil.disk_usage(Path(path).parent).free
            try:
                if free_bytes < needed_bytes:
                    raise sqlite3.OperationalError(
                        f"{free_bytes:,} bytes of disk are free, {needed_bytes:,} needed"
                    )
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("VACUUM")
            except sqlite3.OperationalError as error:
                _log.warning("%s can't shrink: %s; the next upgrade tries again", path, error)

    def _note_end_of_writers(self) -> None:
        """Note that all earlier writers have ended, since this transaction holds their lock."""
        if self._may_commit_late:
            self._forget()
            self._may_commit_late = False

    def _forget(self) -> None:
        """Drop all that is kept in memory."""
        self.cache.clear()
        for records in self._live:
            records.clear()

    def close(self) -> None:
        """Close all idle connections."""
        self._engine.dispose()
        self._unsynced_writer.dispose()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, TimeoutError) as error:
            message = driver_message(error)
            raise StoreError(f"store {self.name}: {message}{_remedy(message)}") from error


class _Group:
    """Writing transactions of one thread, of which the first opens the one that is committed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.session: Session | None = None

    @contextmanager
    def part(self, begin: Callable[[], AbstractContextManager[Session]]) -> Iterator[Session]:
        """Yield a transaction within that of the group, which its error does not affect."""
        if self.session is None:
            self.session = self._stack.enter_context(begin())
        with undone_on_error(self.session), self.session.begin_nested():
            yield self.session


def driver_message(error: DBAPIError | TimeoutError) -> str:
    """Return the message of the database or its driver, as one line."""
    return " ".join(str(getattr(error, "orig", None) or error).split())


def parse_url(url: str) -> URL:
    """Return the URL of a store, with the driver that Castor uses.

    Raises:
        StoreError: the URL names neither an SQLite file nor a PostgreSQL database.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError(f"the URL of the store can't be read: {_URL_HELP}") from error
    if parsed.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if not is_sqlite(parsed):
        raise StoreError(f"store {parsed.drivername}: not a supported database: {_URL_HELP}")
    if not parsed.database or parsed.database == ":memory:":
        raise StoreError(f"store {url}: a store in memory would be lost: {_URL_HELP}")
    return parsed


def is_sqlite(url: URL) -> bool:
    """Return whether a URL from `parse_url` names an SQLite file."""
    return url.get_backend_name() == "sqlite"


def _read_sqlite(url: URL) -> Engine:
    """Return an engine for an existing SQLite file that changes nothing."""
    path = Path(url.database or "").absolute()
    engine = create_engine(url.set(database=str(path)), connect_args={"timeout": _TIMEOUT_SECONDS})

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA query_only = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def _sqlite(url: URL, synchronous: str = "FULL") -> Engine:
    path = Path(url.database or "").absolute()
    engine = create_engine(url.set(database=str(path)), connect_args={"timeout": _TIMEOUT_SECONDS})

    @event.listens_for(engine, "do_connect")
    def create_private_file(*_: object) -> None:
        # Only the owner may read the file: it holds reports of jobs. SQLite copies the mode to
        # its other files and reports errors when it connects. O_EXCL: an existing file must not
        # be opened here, because closing it would release the POSIX locks of this process, and
        # another process that closes the store would discard our writes.
        with suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _: object) -> None:
        # The listener below begins transactions; the driver would begin them too late.
        connection.isolation_level = None
        # Before the first table, so that the file of a new store can shrink.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        _enable_write_ahead_log(connection)
        # FULL syncs each commit: an intent must survive a power cut before its call is made.
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES_OPTION)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _enable_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Let readers and writers of an SQLite file not block each other.

    SQLite refuses at once, whatever its time-out, while another process does the same.
    """
    clock = SystemClock()
    until_seconds = clock.monotonic() + _TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or clock.monotonic() > until_seconds:
                raise
        clock.sleep(_WAL_RETRY_SECONDS)


def connection_arguments(
    lock_seconds: float = _TIMEOUT_SECONDS,
    statement_seconds: float = _STATEMENT_SECONDS,
    idle_seconds: float = _READER_IDLE_SECONDS,
) -> dict[str, str | int]:
    """Return the arguments of connections to PostgreSQL, with limits on all that may hang."""
    server_options = {
        "lock_timeout": f"{lock_seconds * 1000:.0f}ms",
        "statement_timeout": f"{statement_seconds * 1000:.0f}ms",
        "idle_in_transaction_session_timeout": f"{idle_seconds * 1000:.0f}ms",
        "tcp_keepalives_idle": str(_VANISHED_SECONDS // 2),
        "tcp_keepalives_interval": "2",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": f"{_VANISHED_SECONDS}s",
    }
    return {
        "connect_timeout": _TIMEOUT_SECONDS,
        "options": " ".join(f"-c {name}={value}" for name, value in server_options.items()),
        "keepalives_idle": _VANISHED_SECONDS // 2,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": _VANISHED_SECONDS * 1000,
    }


def _postgresql(url: URL) -> Engine:
    engine = create_engine(url, pool_pre_ping=True, connect_args=connection_arguments())

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get(_WRITES_OPTION):
            connection.exec_driver_sql(
                f"SET LOCAL idle_in_transaction_session_timeout = '{WRITER_IDLE_SECONDS}s';"
                f"SELECT pg_advisory_xact_lock({_WRITERS_LOCK_KEY})"
            )
        else:
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

    return engine


def _remedy(message: str) -> str:
    return next((f"; {remedy}" for part, remedy in _REMEDIES if part in message), "")
