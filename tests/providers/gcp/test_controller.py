"""The real controller over Compute Engine as it fails."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.domain.instance import InstancePhase
from autoscaler.ledger.ledger import Ledger
from tests.fakes.gcp.server import FakeGcp
from tests.providers.cloud.controlled import (
    WANTED,
    ControlledWorld,
    ControllerOverCloud,
    assert_recovers_after_a_restart,
)
from tests.providers.gcp.cloud import SMALL_SPOT, GcpWorld
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
    assert_recovers_after_a_restart(world, WAYS[way])


def test_a_stockout_after_the_launch_is_unbilled_and_backs_the_offer_off(
    world: GceWorld,
) -> None:
    """An insert may fail for lack of capacity after its operation was followed for long."""
    world.gcp.project.provision_seconds = 60.0
    world.gcp.project.capacity["g2-standard-4", "us-central1-a", "SPOT"] = 0
    world.set_target(world.job, 1, SMALL_SPOT)
    world.until(lambda: SMALL_SPOT in world.store.capacity.refusals())
    refusal = world.store.capacity.refusals()[SMALL_SPOT]
    assert (refusal.error_kind, refusal.in_a_row) == ("InsufficientCapacity", 1)
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in refusal.reason
    assert 0 < refusal.until_seconds - world.clock.now() <= 15.0
    (ended, *_) = world.store.instances.of_job(world.job, include_ended=True)
    assert (ended.phase, ended.launched_seconds) == (InstancePhase.ENDED, None)
    assert Ledger(world.store.ledger.entries()).total(world.clock.now() + 3600.0) == 0
    world.restart()
    world.until(lambda: world.store.capacity.refusals()[SMALL_SPOT].in_a_row == 3)
    assert Ledger(world.store.ledger.entries()).total(world.clock.now()) < Decimal("0.1")
    told = [event.kind for event in world.store.events.latest(world.job, limit=50)]
    assert told.count("launch refused") == 3
    assert not {"false starts", "instance lost", "order unfilled"} & set(told)
    del world.gcp.project.capacity["g2-standard-4", "us-central1-a", "SPOT"]
    world.until(lambda: len(world.training(world.job)) == 1)
    assert SMALL_SPOT not in world.store.capacity.refusals()


@pytest.mark.gcp
class TestControllerOverCompute(ControllerOverCloud):
    pass


def test_what_a_silent_zone_has_trains_on_and_is_given_back_when_it_answers(
    world: GceWorld,
) -> None:
    """Keep a zone silent for longer than unlisted instances count as running."""
    world.until(world.is_settled)
    before = world.gcp.alive()
    world.gcp.project.unreachable.add("us-central1-a")
    world.tick(times=40, seconds=20.0)
    assert world.settings.vanished_seconds < 40 * 20.0
    assert "instances of us-central1-a are as last seen" in str(world.controller.status.trouble)
    assert world.is_settled() and world.gcp.alive() == before
    world.set_target(world.job, 0)
    world.tick(times=10)
    assert {held.cloud_id for held in world.store.instances.alive()} == set(before)
    world.gcp.project.unreachable.clear()
    world.give_up()
