"""Migration of a database to the table version of this code.

A new SQLite database gets its tables from `newest.sql`; a test compares that file with the result
of the migrations. Alembic is imported only to run migrations, because its import takes as long as
the rest of opening a store.
"""

from __future__ import annotations

from pathlib import Path
from sqlite3 import complete_statement
from typing import Final

from sqlalchemy import Connection, inspect, text

from autoscaler.domain.errors import StoreError
from autoscaler.store.sql.database import Database

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
NEWEST_TABLES: Final = _MIGRATIONS / "newest.sql"
VERSION_TABLE: Final = "alembic_version"
EARLIER_CLAIM_KEY: Final = 0x0CA5705
"""Advisory lock that controllers of earlier releases hold in a session of PostgreSQL."""


def found_version(database: Database) -> str:
    """Return the version of the tables of a store, which this code may migrate.

    Raises:
        StoreError: the database holds no tables, tables of another program, or of a version that
            this code does not know.
    """
    with database.read() as session:
        connection = session.connection()
        version = version_of(connection)
        if version != newest_version():
            from autoscaler.store.sql.upgrading import require_known_version

            require_known_version(connection, version, database.name)
    if version is None:
        raise StoreError(f"store {database.name} is empty: name the store of a controller")
    return version


def migrate(database: Database, keeps_copy: bool = True) -> str:
    """Run the missing migrations in one transaction; return the new version of the tables.

    An SQLite file is copied first (`upgrade`) if `keeps_copy`.

    Raises:
        StoreError: the database holds tables of another program, or of a version that this code
            does not know, or a controller leads a store that has to be migrated.
    """
    newest = newest_version()
    with database.read() as session:
        current = version_of(session.connection())
    if current != newest:
        with database.write() as session:
            connection = session.connection()
            _prepare(connection, database.name)
            current = version_of(connection)
            if current == newest:  # another process has migrated it since the first check
                return newest
            if connection.dialect.name == "sqlite" and not inspect(connection).get_table_names():
                _create_tables(connection)
            else:
                from autoscaler.store.sql.upgrading import upgrade

                upgrade(connection, current, database.name, keeps_copy)
        database.let_shrink()
    return newest


def _prepare(connection: Connection, name: str) -> None:
    """Check that no controller leads the store, and let the migration take its time.

    Raises:
        StoreError: a controller leads the store. A file lock shows it beforehand for SQLite.
    """
    if connection.dialect.name == "sqlite":
        return
    for timeout in ("statement_timeout", "idle_in_transaction_session_timeout"):
        connection.exec_driver_sql(f"SET LOCAL {timeout} = 0")
    lock = text(f"SELECT pg_try_advisory_xact_lock_shared({EARLIER_CLAIM_KEY})")
    is_led = not connection.scalar(lock)
    if not is_led and inspect(connection).has_table("leadership"):
        lease = "SELECT expires_seconds > extract(epoch FROM clock_timestamp()) FROM leadership"
        is_led = bool(connection.scalar(text(lease)))
    if is_led:
        raise StoreError(
            f"store {name} has tables of an earlier version, and a controller leads it: stop that "
            "controller, then start this one"
        )


def newest_version() -> str:
    """Return the version of the package's last migration, such as "0010"."""
    return max(path.name[1:5] for path in _MIGRATIONS.glob("versions/v[0-9]*.py"))


def version_of(connection: Connection) -> str | None:
    """Return the version of the tables; None if there are none, or only another program's."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    version: str | None = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
    return version


def _create_tables(connection: Connection) -> None:
    """Create all tables of the newest version in an empty SQLite database."""
    statement = ""
    for line in NEWEST_TABLES.read_text().splitlines(keepends=True):
        statement += line
        if complete_statement(statement):
            connection.exec_driver_sql(statement)
            statement = ""
