"""Hooks and fixtures that all tests share."""

from __future__ import annotations

import gc
import os
import sqlite3
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import settings

from tests.builders.postgresql import postgresql as postgresql

if TYPE_CHECKING:
    from sqlalchemy import Engine

ROOT = Path(__file__).parents[1]
EXTENDED = ROOT / "tests" / "extended.toml"

pytest.register_assert_rewrite("tests.conformance")


def _block_torchft() -> None:
    """Have no import of torchft succeed, in this process and in its children."""
    sys.modules["torchft"] = None  # type: ignore[assignment]
    blocked = str(ROOT / "tests" / "without_torchft")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (blocked, before)))


# Before any test module is imported: those that skip without torchft look for it then.
if os.environ.get("TESTS_WITHOUT_TORCHFT") == "1":
    _block_torchft()

# Examples have no deadline, because machines differ. CI always draws the same examples. The number
# keeps the suite short; `--hypothesis-profile thorough` draws more.
settings.register_profile("untimed", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.register_profile("steady", settings.get_profile("ci"), max_examples=40)
settings.load_profile("steady" if "CI" in os.environ else "untimed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import a share of the test modules first in each worker of xdist.

    All workers collect the same modules in the same order. In a new checkout each of them would
    rewrite the assertions of all modules, and compile all modules.
    """
    gc.disable()
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    for path in _test_modules(session.config.args)[number::workers]:
        # A failed import is reported when the module is collected.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def _test_modules(arguments: list[str]) -> list[Path]:
    """Return the test modules that pytest's arguments name."""
    modules: set[Path] = set()
    for argument in arguments:
        path = Path(argument.split("::")[0]).absolute()
        modules |= {path} if path.is_file() else set(path.rglob("test_*.py"))
    return sorted(path for path in modules if path.is_relative_to(ROOT / "tests"))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give the tests that are listed in extended.toml their mark."""
    if is_extended(item.nodeid):
        item.add_marker(pytest.mark.extended)


def is_extended(node_id: str) -> bool:
    """Return whether a test, its function or its file is listed and the test is no exception."""
    path, _, name = node_id.partition("::")
    function = name.partition("[")[0]
    names = {path, f"{path}::{function}", node_id}
    listed, everyday = _extended()
    return bool(names & listed) and not names & everyday


@cache
def _extended() -> tuple[frozenset[str], frozenset[str]]:
    lists: dict[str, list[str]] = tomllib.loads(EXTENDED.read_text())
    everyday = lists.pop("everyday")
    return frozenset(name for names in lists.values() for name in names), frozenset(everyday)


def pytest_collection_finish() -> None:
    """Exempt imported modules from garbage collection, and turn the collector on."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Collect garbage once; pytest itself does so five times."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def synced_engine() -> Iterator[Callable[..., Any]]:
    """Yield the function that creates SQLite engines, before tests replace it.

    The tests' engines do not sync their commits, because few tests are about power cuts. They
    share one cache of compiled statements: compiling takes longer than executing.
    """
    from sqlalchemy import event

    from autoscaler.store.sql import database

    synced = database._sqlite

    def unsynced(*arguments: Any) -> Any:
        engine = synced(*arguments)
        # A compiled statement belongs to a dialect, so the engines share the dialect too. An
        # engine creates its connections with its first dialect.
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
    """Return an engine whose dialect has seen a connection, which compiling requires."""
    from sqlalchemy import create_engine

    engine = create_engine("sqlite://", query_cache_size=5000)
    engine.connect().close()
    engine.dispose()
    return engine


@pytest.fixture(scope="session", autouse=True)
def loaded_certificates() -> Iterator[None]:
    """Load the certificates of authorities once: httpx reads them also for plain HTTP."""
    from httpx._transports import default

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(default, "create_ssl_context", cache(default.create_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def loaded_services() -> Iterator[None]:
    """Read botocore's descriptions of services once: each session reads them anew."""
    try:
        from botocore.loaders import Loader
    except ImportError:
        yield
        return

    class Sharing(Loader):  # type: ignore[misc]
        read: ClassVar[dict[Any, Any]] = {}

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._cache = self.read

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.loaders.Loader", Sharing)
        yield


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a new, migrated SQLite store, to be copied."""
    from autoscaler.store.opening import open_store

    path = tmp_path_factory.mktemp("template") / "castor.db"
    open_store(f"sqlite:///{path}").close()
    return path
