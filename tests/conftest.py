"""What the tests of all rooms share."""

from __future__ import annotations

import gc
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

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
    """What makes an engine of SQLite, as it is: in tests its commits wait for no disk.

    Except where that is tested, what is tested is not whether a store survives a power cut.
    """
    from sqlalchemy import event

    from autoscaler.store import database

    synced = database._sqlite

    def unsynced(*arguments: Any) -> Any:
        engine = synced(*arguments)

        @event.listens_for(engine, "connect")
        def configure(connection: sqlite3.Connection, _: object) -> None:
            connection.execute("PRAGMA synchronous = OFF")

        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_sqlite", unsynced)
        yield synced


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in SQLite that is new and migrated, to be copied."""
    from autoscaler.store.opening import open_store

    path = tmp_path_factory.mktemp("template") / "castor.db"
    open_store(f"sqlite:///{path}").close()
    return path
