from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.store.store import Store
from tests.store.led import led_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    """URL of a new SQLite store."""
    return f"sqlite:///{tmp_path}/castor.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Yield the store of `url`, led by this process."""
    store = led_store(url)
    yield store
    store.close()
