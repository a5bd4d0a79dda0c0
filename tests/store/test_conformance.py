from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conformance.store import StoreConformance
from tests.store.conftest import empty


class TestSQLite(StoreConformance):
    @pytest.fixture
    def url(self, template: Path, tmp_path: Path) -> str:
        copy = shutil.copy(template, tmp_path / "castor.db")
        return f"sqlite:///{copy}"


class TestPostgreSQL(StoreConformance):
    @pytest.fixture
    def url(self, migrated_database: str) -> str:
        return empty(migrated_database)
