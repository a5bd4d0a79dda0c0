"""The real controller over Compute Engine as it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.gcp.server import FakeGcp
from tests.providers.cloud.controlled import (
    WANTED,
    ControlledWorld,
    ControllerOverCloud,
    comes_right_through_a_restart,
)
from tests.providers.gcp.cloud import GcpWorld
from tests.providers.gcp.ways import WAYS

IN_SUITE = ("timeout after applying", "no capacity in the operation")


class GceWorld(ControlledWorld):
    """One deployment on Compute Engine."""

    def __init__(self, fake: FakeGcp, kept: Path, **pool: str) -> None:
        self.gcp = GcpWorld(fake, kept, max_instances=WANTED, **pool)
        super().__init__(self.gcp)


@pytest.fixture
def world(fake: FakeGcp, tmp_path: Path) -> GceWorld:
    return GceWorld(fake, tmp_path)


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way in IN_SUITE else pytest.mark.gcp) for way in WAYS]
)
def test_a_launch_that_fails_comes_right_through_a_restart(world: GceWorld, way: str) -> None:
    comes_right_through_a_restart(world, WAYS[way])


@pytest.mark.gcp
class TestControllerOverCompute(ControllerOverCloud):
    pass


def test_what_a_silent_zone_has_trains_on_and_is_given_back_when_it_answers(
    world: GceWorld,
) -> None:
    """For longer than it takes until what lists leave out counts as ended."""
    world.until(world.is_settled)
    before = world.gcp.alive()
    world.gcp.project.unreachable.add("us-central1-a")
    world.tick(times=40, seconds=20.0)
    assert world.settings.vanished_seconds < 40 * 20.0
    assert "instances of us-central1-a are as last seen" in str(world.controller.status.trouble)
    assert world.is_settled() and world.gcp.alive() == before
    world.wish(world.job, 0)
    world.tick(times=10)
    assert {held.cloud_id for held in world.store.instances.alive()} == set(before)
    world.gcp.project.unreachable.clear()
    world.give_up()
