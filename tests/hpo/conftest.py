from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controller.world import World
from tests.hpo.site import site_of
from tests.service.conftest import Api, served

__all__ = ["api", "site_of"]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """Yield the API over a store in memory, which is faster and looks the same to drivers."""
    with served(World(tmp_path), tmp_path) as api:
        yield api
