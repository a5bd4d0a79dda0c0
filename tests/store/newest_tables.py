"""Write the tables of new SQLite databases: ``python -m tests.store.newest_tables``."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from autoscaler.store.sql.database import Database
from autoscaler.store.sql.migration import NEWEST_TABLES
from autoscaler.store.sql.upgrading import upgrade


def migrated_tables(directory: Path) -> str:
    """Return the statements that make the tables of an SQLite database after all migrations."""
    path = directory / "migrated.db"
    database = Database(f"sqlite:///{path}")
    with database.write() as session:
        upgrade(session.connection(), None, database.name)
    database.close()
    with sqlite3.connect(path) as connection:
        return tables_of(connection)


def tables_of(connection: sqlite3.Connection) -> str:
    """Return the statements that make the tables of a database, and what lies in them."""
    lines = "\n".join(connection.iterdump()).splitlines()
    kept = [line.rstrip() for line in lines if line not in ("BEGIN TRANSACTION;", "COMMIT;")]
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        NEWEST_TABLES.write_text(migrated_tables(Path(scratch)))
