"""Random events of a cloud, after which the controller must reach its target and then nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from tests.fakes.faults import Fault, When
from tests.providers.cloud.controlled import WANTED, ControlledWorld


@dataclass(frozen=True)
class Mishap:
    """Fault of the next `times` calls of an action."""

    action: str
    fault: Fault
    times: int

    def happen(self, world: ControlledWorld) -> None:
        is_later = self.fault.when is When.IN_REPLY
        if not is_later or self.action == world.fake.launch_action:
            world.fake.faults.add(replace(self.fault, action=self.action, times=self.times))


@dataclass(frozen=True)
class TargetChange:
    """Change of the number of instances that the policy plans."""

    instances: int

    def happen(self, world: ControlledWorld) -> None:
        world.set_target(world.job, self.instances, world.fake.spot_offer)


@dataclass(frozen=True)
class Restart:
    """Death of the controller and start of another."""

    def happen(self, world: ControlledWorld) -> None:
        world.restart()


@dataclass(frozen=True)
class Reclaim:
    """Reclaim of a running instance, if there is one."""

    number: int

    def happen(self, world: ControlledWorld) -> None:
        alive = world.fake.alive()
        if alive:
            world.fake.reclaim(world.cloud, alive[self.number % len(alive)])


@dataclass(frozen=True)
class Pause:
    """Time without a tick."""

    seconds: float

    def happen(self, world: ControlledWorld) -> None:
        world.fake.pass_time(self.seconds)


def events(actions: Sequence[str], ways: Mapping[str, Fault]) -> st.SearchStrategy[list[Any]]:
    """Return lists of events: faults of these actions, and changes of the deployment."""
    faults = st.sampled_from([ways[way] for way in sorted(ways)])
    event = st.one_of(
        st.builds(Mishap, st.sampled_from(actions), faults, st.integers(1, 3)),
        st.builds(TargetChange, st.integers(0, WANTED)),
        st.builds(Restart),
        st.builds(Reclaim, st.integers(0, WANTED)),
        st.builds(Pause, st.sampled_from([1.0, 5.0, 20.0, 70.0])),
    )
    return st.lists(event, max_size=20)


def assert_recovers(world: ControlledWorld, happenings: Sequence[Any]) -> None:
    """Apply events one tick apart; then assert that the target is reached and can be cleared."""
    for event in happenings:
        event.happen(world)
        world.tick()
    world.fake.faults.clear()
    world.set_target(world.job, WANTED, world.fake.spot_offer)
    world.until(world.is_settled)
    world.give_up()
