"""The real controller over EC2 as it fails."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.fakes.aws.server import FakeAws
from tests.fakes.faults import Fault, When
from tests.providers.aws.cloud import AwsWorld
from tests.providers.aws.ways import WAYS
from tests.providers.cloud.controlled import (
    WANTED,
    ControlledWorld,
    ControllerOverCloud,
    assert_recovers_after_a_restart,
)


class Ec2World(ControlledWorld):
    """One deployment on EC2."""

    def __init__(self, fake: FakeAws, **pool: str) -> None:
        self.aws = AwsWorld(fake, max_instances=WANTED, **pool)
        super().__init__(self.aws)


@pytest.fixture
def world(fake: FakeAws) -> Ec2World:
    return Ec2World(fake)


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=() if way == "timeout after applying" else pytest.mark.aws)
        for way in WAYS
    ],
)
def test_a_launch_that_fails_comes_right_through_a_restart(world: Ec2World, way: str) -> None:
    assert_recovers_after_a_restart(world, WAYS[way])


@pytest.mark.aws
class TestControllerOverEc2(ControllerOverCloud):
    pass


@pytest.mark.parametrize("when", [None, When.LOST_AFTER])
def test_a_lone_instance_is_of_the_zone_that_has_capacity(
    world: Ec2World, when: When | None
) -> None:
    """Also if the process dies before it knows; nothing is bought beside it."""
    planned, other = (f"gpu/g4dn.xlarge/us-east-1{zone}/on-demand" for zone in "ab")
    world.aws.account.capacity["g4dn.xlarge", "us-east-1a", "on-demand"] = 0
    if when is not None:
        world.aws.faults.add(Fault("CreateFleet", when))
    world.set_target(world.job, 1, planned)
    world.tick()
    if when is not None:
        assert [held.cloud_id for held in world.store.instances.alive()] == [None]
        world.aws.account.capacity.clear()
        world.restart()
    world.until(lambda: any(held.cloud_id for held in world.store.instances.alive()))
    (held,) = world.store.instances.alive()
    assert (held.offer, held.ordered_offer) == (other, planned)
    assert held.usd_per_hour == Decimal("0.526")
    assert [entry.offer for entry in world.store.ledger.entries()] == [other]
    events = [event.kind for event in world.store.events.latest(world.job)]
    assert events.count("other zone") == 1
    world.set_target(world.job, 1, other)
    world.until(lambda: len(world.training(world.job)) == 1)
    world.tick(times=10)
    assert world.fake.alive() == [held.cloud_id]
