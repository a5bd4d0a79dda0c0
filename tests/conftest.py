"""What the tests of all rooms share."""

from __future__ import annotations

import gc
import os
import sqlite3
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytest.register_assert_rewrite("tests.conformance")

# Machines differ: no example has a deadline. In CI the same examples are drawn always. As many as
# leave the whole suite short; `--hypothesis-profile thorough` draws more.
settings.register_profile("untimed", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.register_profile("steady", settings.get_profile("ci"), max_examples=40)
settings.load_profile("steady" if "CI" in os.environ else "untimed")


def pytest_collection_finish() -> None:
    """What was imported stays: there is no waste to be looked for in it."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Look for waste once; pytest itself does so five times."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def synced_engine() -> Iterator[Callable[..., Any]]:
    """The function that makes an engine of SQLite, before tests replace it.

    The engines of tests do not sync their commits, for few tests are of power cuts. They share one
    cache of compiled statements: to compile the statements anew takes longer than to execute them.
    """
    from sqlalchemy import event

    from autoscaler.store import database

    synced = database._sqlite

    def unsynced(*arguments: Any) -> Any:
        engine = synced(*arguments)
        # A compiled statement belongs to a dialect, so the engines share that too. The connections
        # of an engine are made by the dialect that it was created with.
        engine.dialect = _compiler().dialect
        engine._compiled_cache = _compiler()._compiled_cache

        @event.listens_for(engine, "connect")
        def configure(connection: sqlite3.Connection, _: object) -> None:
            connection.execute("PRAGMA synchronous = OFF")

        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_sqlite", unsynced)
        yield synced


@cache
def _compiler() -> Engine:
    """Return an engine whose dialect has seen a connection, as one that compiles must."""
    from sqlalchemy import create_engine

    engine = create_engine("sqlite://", query_cache_size=5000)
    engine.connect().close()
    engine.dispose()
    return engine


@pytest.fixture(scope="session", autouse=True)
def loaded_certificates() -> Iterator[None]:
    """Load the certificates of authorities once: calls over plain HTTP need none of them."""
    from httpx._transports import default

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(default, "create_ssl_context", cache(default.create_ssl_context))
        yield


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in SQLite that is new and migrated, to be copied."""
    from autoscaler.store.opening import open_store

    path = tmp_path_factory.mktemp("template") / "castor.db"
    open_store(f"sqlite:///{path}").close()
    return path
