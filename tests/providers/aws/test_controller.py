"""The real controller over EC2 as it fails: effects in the account, not what anybody said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from autoscaler.controller.assembly import ControllerParts, assemble
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.instance import Desired, InstancePhase
from autoscaler.store.memory.store import memory_store
from providers.aws.provider import AwsProvider
from tests.controller.world import AtOnce, Lights, Wishes, World
from tests.fakes.aws.faults import Fault, When
from tests.fakes.aws.server import FakeAws
from tests.providers.aws.cloud import SMALL_SPOT, AwsWorld
from tests.providers.aws.driving import WAYS

WANTED = 2
LOST = Fault("CreateFleet", When.LOST_AFTER)


class Ec2World(World):
    """One deployment on EC2 that boots and lags, with one job; its store outlives its process."""

    cloud: AwsProvider  # type: ignore[assignment]

    def __init__(self, fake: FakeAws, **pool: str) -> None:
        self.aws = AwsWorld(fake, max_instances=WANTED, **pool)
        self.aws.account.lag_seconds = 5.0
        self.aws.account.boot_seconds = 9.0
        self.clock = self.aws.clock
        self.lights = Lights()
        self.wishes = Wishes()
        self.settings = ControllerSettings(orphan_seconds=10.0, replan_seconds=0.0)
        self.store = memory_store()
        self.restart()
        self.job = self.submit()
        self.wish(self.job, WANTED, SMALL_SPOT)

    def restart(self) -> None:
        self.cloud = self.aws.connect(self.store.settings.controller_id())
        parts = ControllerParts(
            store=self.store,
            providers={"aws": self.cloud},
            policy=self.wishes,
            lighthouses=self.lights,  # type: ignore[arg-type]
            workers=AtOnce(),
            clock=self.clock,
            user_data=lambda held: f"join {held.id} at {self.clock.now()}",
        )
        self.controller = assemble(parts, self.settings)

    def tick(self, times: int = 1, seconds: float = 3.0, agents: bool = True) -> None:
        for _ in range(times):
            self.aws.pass_time(seconds)
            self.agents_speak()
            self.controller.tick(self.clock.now())
            assert self.aws.account.most_alive <= WANTED

    def agents_speak(self) -> None:
        """They need no provider for it, and none of its calls."""
        account = self.aws.account
        running = {one for one in account.alive() if not account.is_pending(one)}
        for held in self.store.instances.alive():
            if held.cloud_id in running:
                leaves = held.desired is Desired.ABSENT
                phase = InstancePhase.DRAINED if leaves else InstancePhase.TRAINING
                self.store.instances.record_node(held.id, phase, self.clock.now())

    def until(self, condition: Callable[[], bool]) -> None:
        """Faster where the controller itself waits, as it does after a quota."""
        for _ in range(120):
            if condition():
                return
            waits = self.store.capacity.unavailable(self.clock.now())
            self.tick(seconds=30.0 if waits else 3.0)
        raise AssertionError(f"never came to be: {self.controller.status.trouble}")

    def is_settled(self) -> bool:
        """The job trains on all that it wants, and nothing else runs."""
        held = {one.cloud_id for one in self.training(self.job)}
        return len(held) == WANTED and held == set(self.aws.account.alive())

    def give_up(self) -> None:
        """Nothing is wanted any more; nothing is left, and nothing comes back."""
        self.wish(self.job, 0)
        self.until(lambda: not self.store.instances.alive() and not self.aws.account.alive())
        self.tick(times=5)
        assert self.aws.account.alive() == []


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
    world.aws.account.faults.add(replace(WAYS[way], action="CreateFleet", times=3))
    world.tick(times=2)
    world.restart()
    world.until(world.is_settled)
    world.give_up()


def test_what_is_cancelled_while_it_is_launched_does_not_stay(world: Ec2World) -> None:
    """The place where others leaked: nobody knows yet that it was launched."""
    world.aws.account.faults.add(replace(LOST, times=2))
    world.tick()
    assert len(world.aws.account.alive()) == WANTED
    assert [held.cloud_id for held in world.store.instances.alive()] == [None] * WANTED
    world.restart()
    world.give_up()


@pytest.mark.aws
def test_what_is_reclaimed_is_released_and_replaced(world: Ec2World) -> None:
    world.until(world.is_settled)
    taken = world.aws.account.alive()[0]
    world.aws.reclaim(world.cloud, taken)
    world.tick(times=2)
    assert taken not in {one.cloud_id for one in world.training(world.job)}
    world.until(lambda: taken in world.aws.account.ended_seconds and world.is_settled())
    world.give_up()


@pytest.mark.aws
def test_a_role_that_is_revoked_costs_no_job_and_is_told(world: Ec2World) -> None:
    world.until(world.is_settled)
    before = world.aws.account.alive()
    denied = {"code": "UnauthorizedOperation", "status": 403, "times": None}
    world.aws.account.faults.add(
        *(Fault(action, **denied) for action in ("DescribeInstances", "TerminateInstances"))
    )
    world.tick(times=10)
    assert "allow DescribeInstances to the controller's role" in world.controller.status.trouble
    assert world.aws.account.alive() == before
    assert len(world.training(world.job)) == WANTED
    world.aws.account.faults.clear()
    world.tick(times=2)
    assert world.controller.status.trouble is None
    world.give_up()


@pytest.mark.aws
def test_what_nobody_ordered_is_ended_on_the_second_look(world: Ec2World) -> None:
    world.until(world.is_settled)
    world.aws.account.faults.clear()
    world.wish(world.job, 0)
    world.until(lambda: not world.aws.account.alive())
    stray = world.aws.connect(world.store.settings.controller_id())
    request = world.aws.request("x", controller=world.store.settings.controller_id())
    stray.launch(request)
    world.until(lambda: not world.aws.account.alive())
    assert any(event.kind == "orphan" for event in world.store.events.latest(None, limit=20))
