"""Lock of an SQLite database, which one controller at a time holds.

The lock is a file beside the database. It ends with the process of its holder. Other processes may
read the database.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from autoscaler.domain.errors import Conflict, StoreError
from autoscaler.store.sql.database import is_sqlite, parse_url


@contextmanager
def hold_database(url: str, state: Path) -> Iterator[None]:
    """Lock the SQLite database at `url` while the context lasts; PostgreSQL has only a lease.

    Args:
        url: SQLite or PostgreSQL URL of the store.
        state: state directory of this controller, which a conflict names.

    Raises:
        Conflict: another controller holds the lock; the message names that controller.
        StoreError: the URL names no store, its directory is not writable, or the SQLite file has
            several hard links.
    """
    parsed = parse_url(url)
    if not is_sqlite(parsed):
        yield
        return
    lock = _FileLock(Path(parsed.database or ""), f"{process_name()}, state {state}")
    try:
        yield
    finally:
        lock.release()


def process_name() -> str:
    """Return the name of this process for people: its host and its id."""
    return f"{socket.gethostname()} pid {os.getpid()}"


class _FileLock:
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

    def release(self) -> None:
        """Release the lock."""
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
        raise _lock_conflict(str(database), holder) from None
    return file


def _lock_conflict(store: str, holder: str) -> Conflict:
    return Conflict(
        f"another controller holds the store {store}: {holder}; stop that controller, or name "
        "another --store"
    )
