from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.store.memory.store import memory_store
from autoscaler.store.store import Store
from tests.conformance.store import DatabaseConformance, StoreConformance
from tests.store.conftest import empty
from tests.store.led import led_store


class TestMemory(StoreConformance):
    @pytest.fixture
    def store(self) -> Store:
        return memory_store()


class TestSQLite(DatabaseConformance):
    @pytest.fixture
    def url(self, template: Path, tmp_path: Path) -> str:
        copy = shutil.copy(template, tmp_path / "castor.db")
        return f"sqlite:///{copy}"


class TestLedSQLite(StoreConformance):
    @pytest.fixture
    def store(self, template: Path, tmp_path: Path) -> Iterator[Store]:
        copy = shutil.copy(template, tmp_path / "castor.db")
        store = led_store(f"sqlite:///{copy}")
        yield store
        store.close()


class TestPostgreSQL(DatabaseConformance):
    @pytest.fixture
    def url(self, migrated_database: str) -> str:
        return empty(migrated_database)
