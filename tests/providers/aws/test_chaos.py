"""Whatever happens, in whatever order: in the end there is what is wanted, and then nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.aws.faults import When
from tests.fakes.aws.server import FakeAws
from tests.providers.aws.cloud import SMALL_SPOT
from tests.providers.aws.test_controller import Ec2World
from tests.providers.aws.ways import WAYS
from tests.providers.cloud.controlled import WANTED

ACTIONS = (
    *("CreateFleet", "DescribeInstances", "TerminateInstances", "PutObject", "ReceiveMessage"),
    *("DeleteMessageBatch", "DescribeSpotPriceHistory", "ListServiceQuotas", "GetProducts"),
)


@dataclass(frozen=True)
class Mishap:
    """A call that will fail so many times."""

    action: str
    way: str
    times: int

    def happen(self, world: Ec2World) -> None:
        fault = WAYS[self.way]
        if fault.when is not When.IN_REPLY or self.action == "CreateFleet":
            world.aws.account.faults.add(replace(fault, action=self.action, times=self.times))


@dataclass(frozen=True)
class Wish:
    """So many instances are wanted from now on."""

    instances: int

    def happen(self, world: Ec2World) -> None:
        world.wish(world.job, self.instances, SMALL_SPOT)


@dataclass(frozen=True)
class Restart:
    """The controller dies, and another goes on."""

    def happen(self, world: Ec2World) -> None:
        world.restart()


@dataclass(frozen=True)
class Reclaim:
    """The cloud takes one back, if there is one."""

    number: int

    def happen(self, world: Ec2World) -> None:
        alive = world.aws.account.alive()
        if alive:
            world.aws.reclaim(world.cloud, alive[self.number % len(alive)])


@dataclass(frozen=True)
class Pause:
    """Time passes without a tick."""

    seconds: float

    def happen(self, world: Ec2World) -> None:
        world.aws.pass_time(self.seconds)


EVENTS = st.one_of(
    st.builds(Mishap, st.sampled_from(ACTIONS), st.sampled_from(sorted(WAYS)), st.integers(1, 3)),
    st.builds(Wish, st.integers(0, WANTED)),
    st.builds(Restart),
    st.builds(Reclaim, st.integers(0, WANTED)),
    st.builds(Pause, st.sampled_from([1.0, 5.0, 20.0, 70.0])),
)


@pytest.mark.aws
@settings(max_examples=20)
@given(events=st.lists(EVENTS, max_size=20), lag_seconds=st.sampled_from([0.0, 5.0, 20.0]))
def test_all_comes_right_in_the_end(
    fake: FakeAws, events: list[Mishap], lag_seconds: float
) -> None:
    world = Ec2World(fake)
    world.aws.account.lag_seconds = lag_seconds
    for event in events:
        event.happen(world)
        world.tick()
    world.aws.account.faults.clear()
    world.wish(world.job, WANTED, SMALL_SPOT)
    world.until(world.is_settled)
    world.give_up()
