"""Copies of whole databases, as of one moment, while other processes write.

A copy is an SQLite file, also of a store in PostgreSQL, so that it fits both databases.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, MetaData, Table, func, inspect, select

from autoscaler.domain.errors import StoreError
from autoscaler.store.sql.database import Database, is_sqlite, parse_url
from autoscaler.store.sql.migration import VERSION_TABLE, migrate, newest_version, version_of
from autoscaler.store.sql.sqlite_copy import copy_sqlite

_ROWS_AT_ONCE = 1000


def copy_store(url: str, copy: Path) -> str:
    """Copy a store to a new SQLite file that only its owner can read; return its version.

    Writers of the store are not held up.

    Raises:
        StoreError: the store can't be read, is none, or is in PostgreSQL and of another version
            than this code.
    """
    parsed = parse_url(url)
    if is_sqlite(parsed):
        copy_sqlite(Path(parsed.database or ""), copy)
    else:
        _export(url, copy)
    return sqlite_version(copy)


def sqlite_version(path: Path) -> str:
    """Return the version of the tables of a closed store in an SQLite file.

    Raises:
        StoreError: the file holds no store.
    """
    try:
        with closing(sqlite3.connect(path)) as connection:
            row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    except sqlite3.Error as error:
        raise StoreError(f"{path} holds no store of Castor: {error}") from error
    return str(row[0])


def import_store(copy: Path, url: str) -> None:
    """Fill an empty PostgreSQL database with a copy, which is migrated first.

    Raises:
        StoreError: the database holds rows, or can't be written.
    """
    source, target = Database(f"sqlite:///{copy}"), Database(url)
    try:
        migrate(source)
        migrate(target)
        with source.read() as reader, target.write() as writer:
            require_no_rows(writer.connection(), target.name)
            copy_rows(reader.connection(), writer.connection())
    finally:
        source.close()
        target.close()


def require_no_rows(connection: Connection, name: str) -> None:
    """Check that the tables of a migrated store are empty.

    Raises:
        StoreError: a table has rows; the message names that table.
    """
    for table in _tables(connection):
        if connection.execute(select(table).limit(1)).first() is not None:
            raise StoreError(
                f"store {name} is not empty (table {table.name}): a backup is restored into an "
                "empty database only"
            )


def copy_rows(source: Connection, target: Connection) -> None:
    """Copy all rows between two databases whose tables have one version."""
    known = {table.name: table for table in _tables(source)}
    for table in _tables(target):
        original = known[table.name]
        rows = source.execution_options(yield_per=_ROWS_AT_ONCE).execute(select(original))
        for part in rows.mappings().partitions(_ROWS_AT_ONCE):
            target.execute(table.insert(), [dict(row) for row in part])
        if target.dialect.name == "postgresql":
            _advance_sequence(target, table)


def _export(url: str, copy: Path) -> None:
    """Copy a store in PostgreSQL, in one reading transaction, to a new SQLite file."""
    source, target = Database(url), Database(f"sqlite:///{copy}")
    try:
        with source.read() as reader:
            version = version_of(reader.connection())
            if version != newest_version():
                raise StoreError(
                    f"store {source.name} has tables of version {version}, and this Castor "
                    f"backs up version {newest_version()}: use the Castor that serves it"
                )
            migrate(target)
            with target.write() as writer:
                copy_rows(reader.connection(), writer.connection())
    finally:
        source.close()
        target.close()


def _tables(connection: Connection) -> list[Table]:
    """Return all tables but that of the version, each after those that it refers to."""
    known = MetaData()
    known.reflect(connection)
    return [table for table in known.sorted_tables if table.name != VERSION_TABLE]


def _advance_sequence(target: Connection, table: Table) -> None:
    """Let the next row of a table in PostgreSQL get a number above all copied ones."""
    for column in inspect(target).get_columns(table.name):
        if str(column["default"]).startswith("nextval"):
            highest = func.coalesce(func.max(table.c[column["name"]]), 0) + 1
            sequence = func.pg_get_serial_sequence(table.name, column["name"])
            target.execute(select(func.setval(sequence, highest, False)).select_from(table))
