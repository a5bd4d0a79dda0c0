"""Compute Engine, whatever happens, in whatever order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.gcp.server import FakeGcp
from tests.providers.cloud.chaos import assert_recovers, events
from tests.providers.gcp.test_controller import GceWorld
from tests.providers.gcp.test_faults import ACTIONS
from tests.providers.gcp.ways import WAYS


@pytest.mark.gcp
@settings(max_examples=20)
@given(happenings=events(ACTIONS, WAYS), lag_seconds=st.sampled_from([0.0, 5.0, 20.0]))
def test_all_comes_right_in_the_end(
    fake: FakeGcp,
    tmp_path_factory: pytest.TempPathFactory,
    happenings: list[Any],
    lag_seconds: float,
) -> None:
    kept: Path = tmp_path_factory.mktemp("kept")
    world = GceWorld(fake, kept)
    world.gcp.project.lag_seconds = lag_seconds
    assert_recovers(world, happenings)
