"""Fixtures and rules of the tests of training."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist
from torch.distributed import HashStore

from autoscaler.domain.training import Engine
from tests.training.fleet import engine_here

_HAS_TORCHFT = engine_here() is Engine.QUORUM


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests of the quorum engine where torchft is missing.

    They are parametrized by that engine, or have the marker `quorum`.
    """
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    of_quorum = any(isinstance(value, str) and value == Engine.QUORUM for value in parameters)
    if not _HAS_TORCHFT and (of_quorum or item.get_closest_marker("quorum")):
        pytest.skip("the quorum engine needs torchft, which is not installed")


@pytest.fixture
def engine() -> Engine:
    """Engine that is the default here. A test for both has a parameter of this name."""
    return engine_here()


@pytest.fixture
def group() -> Iterator[None]:
    """Process group of one rank."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
