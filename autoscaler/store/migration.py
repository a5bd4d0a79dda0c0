"""Bring the tables of a database to the version of this code.

A new SQLite database gets its tables from `newest.sql`, which a test compares with what the
migrations make. Alembic is imported only where a migration is to run: its import takes as long as
the rest of opening a store.
"""

from __future__ import annotations

from pathlib import Path
from sqlite3 import complete_statement
from typing import Final

from sqlalchemy import Connection, inspect, text

from autoscaler.store.database import Database

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
NEWEST_TABLES: Final = _MIGRATIONS / "newest.sql"
_VERSIONS: Final = "alembic_version"


def migrate(database: Database) -> str:
    """Run the migrations that are missing, all in one transaction; return the version reached.

    Raises:
        StoreError: the database holds something else, or tables of a version that this code
            does not know.
    """
    newest = _newest_version()
    with database.read() as session:
        found = _version(session.connection())
    if found != newest:
        with database.write() as session:
            # Another process may have migrated since the first look.
            connection = session.connection()
            if connection.dialect.name == "sqlite" and not inspect(connection).get_table_names():
                _create_tables(connection)
            else:
                from autoscaler.store.upgrading import upgrade

                upgrade(connection, _version(connection), database.name)
    return newest


def _newest_version() -> str:
    """Return the version that the last migration of the package makes."""
    return max(path.name[1:5] for path in _MIGRATIONS.glob("versions/v[0-9]*.py"))


def _version(connection: Connection) -> str | None:
    """Return the version of the tables; None if there are none, or another program's."""
    if not inspect(connection).has_table(_VERSIONS):
        return None
    found: str | None = connection.scalar(text(f"SELECT version_num FROM {_VERSIONS}"))
    return found


def _create_tables(connection: Connection) -> None:
    """Create all tables of the newest version in an empty SQLite database."""
    statement = ""
    for line in NEWEST_TABLES.read_text().splitlines(keepends=True):
        statement += line
        if complete_statement(statement):
            connection.exec_driver_sql(statement)
            statement = ""
