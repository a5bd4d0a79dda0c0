"""Real controller over a faulty cloud; the tests check the cloud's own state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autoscaler.controller.assembly import ControllerParts, assemble
from autoscaler.controller.settings import ControllerSettings
from autoscaler.controller.workers import InlineWorkers
from autoscaler.domain.instance import Desired, InstancePhase
from autoscaler.domain.job import ParallelismSpec
from autoscaler.store.memory.store import memory_store
from providers.base import Provider
from tests.controller.world import PlannedTargets, RecordedLighthouses, World
from tests.fakes.faults import Fault, When
from tests.providers.cloud.world import FakeCloud

WANTED = 2


class ControlledWorld(World):
    """Deployment with one job in a cloud that boots slowly and lists with a lag.

    The store outlives the controller. The cloud's pool must have room for `WANTED` instances.
    """

    cloud: Provider  # type: ignore[assignment]

    def __init__(self, fake: FakeCloud) -> None:
        self.fake = fake
        fake.lag(lag_seconds=5.0, boot_seconds=9.0)
        self.clock = fake.clock
        self.lighthouses = RecordedLighthouses()
        self.policy = PlannedTargets()
        self.settings = ControllerSettings(orphan_seconds=10.0, replan_seconds=0.0)
        self.store = memory_store()
        self.restart()
        self.job = self.submit()
        self.set_target(self.job, WANTED, fake.spot_offer)

    def restart(self) -> None:
        self.cloud = self.fake.connect(self.store.settings.controller_id())
        parts = ControllerParts(
            store=self.store,
            providers={self.fake.provider_name: self.cloud},
            policy=self.policy,
            lighthouses=self.lighthouses,  # type: ignore[arg-type]
            workers=InlineWorkers(),
            clock=self.clock,
            user_data=lambda held: f"join {held.id} at {self.clock.now()}",
        )
        self.controller = assemble(parts, self.settings)

    def tick(self, times: int = 1, seconds: float = 3.0, agents: bool = True) -> None:
        for _ in range(times):
            self.fake.pass_time(seconds)
            self.report_from_agents()
            self.controller.tick(self.clock.now())
            assert self.fake.most_alive <= WANTED

    def report_from_agents(self) -> None:
        """Report for every agent of a running instance, without calls of the provider."""
        for held in self.store.instances.alive():
            if held.cloud_id is not None and self.fake.is_running(held.cloud_id):
                leaves = held.desired is Desired.ABSENT
                phase = InstancePhase.DRAINED if leaves else InstancePhase.TRAINING
                self.store.instances.record_node(held.id, phase, self.clock.now())

    def until(self, condition: Callable[[], bool]) -> None:
        """Run ticks until a condition holds, with longer ones while offers are refused."""
        for _ in range(120):
            if condition():
                return
            waits = self.store.capacity.unavailable(self.clock.now())
            self.tick(seconds=30.0 if waits else 3.0)
        raise AssertionError(f"the condition never held: {self.controller.status.trouble}")

    def is_settled(self) -> bool:
        """Return whether the job trains on `WANTED` instances and no others run."""
        held = {instance.cloud_id for instance in self.training(self.job)}
        return len(held) == WANTED and held == set(self.fake.alive())

    def give_up(self) -> None:
        """Plan no instances; assert that all end and none returns."""
        self.set_target(self.job, 0)
        self.until(lambda: not self.store.instances.alive() and not self.fake.alive())
        self.tick(times=5)
        assert not self.fake.alive()


def assert_recovers_after_a_restart(world: ControlledWorld, fault: Fault) -> None:
    """Assert that the target is reached after failed launches and a restart."""
    world.fake.faults.add(replace(fault, action=world.fake.launch_action, times=3))
    world.tick(times=2)
    world.restart()
    world.until(world.is_settled)
    world.give_up()


class ControllerOverCloud:
    """Tests of the controller over any cloud; a subclass defines the fixture `world`."""

    def test_what_is_cancelled_while_it_is_launched_does_not_stay(
        self, world: ControlledWorld
    ) -> None:
        """Cancel launches of which the controller has no answer."""
        world.fake.faults.add(Fault(world.fake.launch_action, When.LOST_AFTER, times=2))
        world.tick()
        assert len(world.fake.alive()) == WANTED
        assert [held.cloud_id for held in world.store.instances.alive()] == [None] * WANTED
        world.restart()
        world.give_up()

    def test_what_is_reclaimed_is_released_and_replaced(self, world: ControlledWorld) -> None:
        world.until(world.is_settled)
        taken = world.fake.alive()[0]
        world.fake.reclaim(world.cloud, taken)
        world.tick(times=2)
        assert taken not in {instance.cloud_id for instance in world.training(world.job)}
        world.until(lambda: taken not in world.fake.alive() and world.is_settled())
        world.give_up()

    def test_a_gang_is_launched_reclaimed_and_replaced_as_one(
        self, world: ControlledWorld
    ) -> None:
        """Refuse one of two launches, then take one instance back."""
        code, status = world.fake.denied
        world.fake.faults.add(Fault(world.fake.launch_action, code=code, status=status))
        world.set_target(world.job, 0)
        world.job = world.submit("sharded", parallelism=ParallelismSpec(shard=WANTED))
        world.set_target(world.job, WANTED, world.fake.spot_offer)
        world.tick()
        assert len(world.fake.alive()) == WANTED - 1
        world.until(lambda: not world.fake.alive())
        world.until(world.is_settled)
        before = set(world.fake.alive())
        assert {held.seat.number for held in world.training(world.job) if held.seat} == {2}
        world.fake.reclaim(world.cloud, min(before))
        world.until(lambda: before.isdisjoint(world.fake.alive()) and world.is_settled())
        assert {held.seat.number for held in world.training(world.job) if held.seat} == {3}
        world.give_up()

    def test_a_role_that_is_revoked_costs_no_job_and_is_told(self, world: ControlledWorld) -> None:
        world.until(world.is_settled)
        before = world.fake.alive()
        code, status = world.fake.denied
        for action in (world.fake.list_action, world.fake.end_action):
            world.fake.faults.add(Fault(action, code=code, status=status, times=None))
        world.tick(times=10)
        action = world.fake.list_action.removeprefix("compute.")
        assert f"allow {action} to these credentials" in str(world.controller.status.trouble)
        assert world.fake.alive() == before
        assert len(world.training(world.job)) == WANTED
        world.fake.faults.clear()
        world.tick(times=2)
        assert world.controller.status.trouble is None
        world.give_up()

    def test_what_nobody_ordered_is_ended_on_the_second_look(self, world: ControlledWorld) -> None:
        world.until(world.is_settled)
        world.give_up()
        controller = world.store.settings.controller_id()
        stray = world.fake.connect(controller)
        stray.launch(world.fake.request("x", world.fake.spot_offer, controller=controller))
        world.until(lambda: not world.fake.alive())
        assert any(event.kind == "orphan" for event in world.store.events.latest(None, limit=20))


__all__ = ["WANTED", "ControlledWorld", "ControllerOverCloud", "assert_recovers_after_a_restart"]
