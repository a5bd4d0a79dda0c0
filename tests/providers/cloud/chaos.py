"""Whatever happens, in whatever order: in the end there is what is wanted, and then nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from tests.fakes.faults import Fault, When
from tests.providers.cloud.controlled import WANTED, ControlledWorld


@dataclass(frozen=True)
class Mishap:
    """A call that will fail so many times."""

    action: str
    fault: Fault
    times: int

    def happen(self, world: ControlledWorld) -> None:
        is_later = self.fault.when is When.IN_REPLY
        if not is_later or self.action == world.fake.launch_action:
            world.fake.faults.add(replace(self.fault, action=self.action, times=self.times))


@dataclass(frozen=True)
class Wish:
    """So many instances are wanted from now on."""

    instances: int

    def happen(self, world: ControlledWorld) -> None:
        world.wish(world.job, self.instances, world.fake.spot_offer)


@dataclass(frozen=True)
class Restart:
    """The controller dies, and another goes on."""

    def happen(self, world: ControlledWorld) -> None:
        world.restart()


@dataclass(frozen=True)
class Reclaim:
    """The cloud takes one back, if there is one."""

    number: int

    def happen(self, world: ControlledWorld) -> None:
        alive = world.fake.alive()
        if alive:
            world.fake.reclaim(world.cloud, alive[self.number % len(alive)])


@dataclass(frozen=True)
class Pause:
    """Time passes without a tick."""

    seconds: float

    def happen(self, world: ControlledWorld) -> None:
        world.fake.pass_time(self.seconds)


def events(actions: Sequence[str], ways: Mapping[str, Fault]) -> st.SearchStrategy[list[Any]]:
    """Sequences of what may happen to calls of these actions, in these ways, and beside them."""
    faults = st.sampled_from([ways[way] for way in sorted(ways)])
    one = st.one_of(
        st.builds(Mishap, st.sampled_from(actions), faults, st.integers(1, 3)),
        st.builds(Wish, st.integers(0, WANTED)),
        st.builds(Restart),
        st.builds(Reclaim, st.integers(0, WANTED)),
        st.builds(Pause, st.sampled_from([1.0, 5.0, 20.0, 70.0])),
    )
    return st.lists(one, max_size=20)


def comes_right_in_the_end(world: ControlledWorld, happenings: Sequence[Any]) -> None:
    """All of it happens, a tick apart; then nothing more does."""
    for event in happenings:
        event.happen(world)
        world.tick()
    world.fake.faults.clear()
    world.wish(world.job, WANTED, world.fake.spot_offer)
    world.until(world.is_settled)
    world.give_up()
