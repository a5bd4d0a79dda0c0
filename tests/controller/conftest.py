from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.store.store import open_store
from tests.controller.world import World


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that is new and migrated, to be copied."""
    path = tmp_path_factory.mktemp("template") / "castor.db"
    open_store(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def world(tmp_path: Path, template: Path) -> Iterator[World]:
    world = World(tmp_path, template=template)
    yield world
    world.store.close()
