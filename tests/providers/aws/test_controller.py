"""The real controller over EC2 as it fails."""

from __future__ import annotations

import pytest

from tests.fakes.aws.server import FakeAws
from tests.providers.aws.cloud import AwsWorld
from tests.providers.aws.ways import WAYS
from tests.providers.cloud.controlled import (
    WANTED,
    ControlledWorld,
    ControllerOverCloud,
    comes_right_through_a_restart,
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
    comes_right_through_a_restart(world, WAYS[way])


@pytest.mark.aws
class TestControllerOverEc2(ControllerOverCloud):
    pass
