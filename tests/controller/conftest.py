from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controller.world import World


@pytest.fixture
def world(tmp_path: Path, template: Path) -> Iterator[World]:
    world = World(tmp_path, template=template)
    yield world
    world.store.close()
