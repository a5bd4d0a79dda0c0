"""Copy of an SQLite file, as of one moment, while other processes write."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from autoscaler.domain.errors import StoreError


def copy_sqlite(source: Path, copy: Path) -> None:
    """Copy an SQLite file to a new file that only its owner can read, and check the copy.

    Raises:
        StoreError: the source can't be read, is damaged, or the copy can't be written.
    """
    if not source.exists():
        raise StoreError(f"{source} does not exist: name the state directory of a controller")
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(copy)) as written:
            # All pages in one step: a step would begin anew after each write of another process.
            read.backup(written)
            written.execute("PRAGMA journal_mode = DELETE")  # one file, without -wal and -shm
            problem = written.execute("PRAGMA quick_check").fetchone()[0]
    except sqlite3.Error as error:
        copy.unlink()
        raise StoreError(f"{source} can't be copied to {copy}: {error}") from error
    if problem != "ok":
        copy.unlink()
        raise StoreError(f"{source} is damaged ({problem}): restore it from a backup")
