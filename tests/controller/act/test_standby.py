"""Old instances on standby while another kind of instance is measured."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.controller.act.standby import STANDBY_SECONDS
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.instance import Desired, InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.domain.objective import Objective
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import Snapshot
from autoscaler.store.repositories.measurements import START_DURATION
from autoscaler.store.repositories.settings import Freeze
from tests.controller.cloud import offer
from tests.controller.world import World


@pytest.fixture
def pair(world: World) -> World:
    """Return a deployment whose large offer has a kind of device of its own."""
    small, large = world.cloud.sold
    world.cloud.sold = (small, replace(large, device_kind="gpu"))
    return world


def looking(world: World, **spec: object) -> str:
    """Return a job on one large instance that its one small instance stands by for."""
    job = world.submit(**spec)
    world.set_target(job, 1)
    world.tick(6)
    measure(world, job, "core")
    world.set_target(job, 1, "large")
    while not standing(world, job):
        world.tick(1)
        assert world.clock.now() < 2_000_000, "no instance was paused"
    return job


def standing(world: World, job: str) -> list[str]:
    return [held.offer for held in world.store.instances.of_job(job) if held.stands_by]


def phases(world: World, job: str) -> dict[str, tuple[Desired, InstancePhase]]:
    return {held.offer: (held.desired, held.phase) for held in world.store.instances.of_job(job)}


def measure(world: World, job: str, device_kind: str = "gpu") -> None:
    """Have the job's one instance of a kind report its step times."""
    observation = StepObservation(device_kind, 1, 1, 32, 0, 0.1, 0.0, 100)
    world.store.measurements.add_observations(job, (observation,), world.clock.now())


def test_the_old_instance_is_paused_once_the_new_one_trains(pair: World) -> None:
    job = looking(pair)
    pair.tick(1)
    assert phases(pair, job)["small"] == (Desired.PRESENT, InstancePhase.READY)
    assert [held.offer for held in pair.training(job)] == ["large"]
    assert pair.store.events.latest(job, limit=5)[0].kind == "standby"


def test_the_way_back_boots_nothing(pair: World) -> None:
    job = looking(pair)
    launches = pair.cloud.launch_calls
    pair.tick(2)
    pair.set_target(job, 1)
    pair.tick(2)
    assert "small" in [held.offer for held in pair.training(job)]
    pair.tick(4)
    assert [held.offer for held in pair.store.instances.of_job(job)] == ["small"]
    assert pair.cloud.launch_calls == launches
    starts = pair.store.measurements.durations(job)["small", START_DURATION]
    assert starts.count == 1, "training again is no start"
    pair.assert_nothing_leaked()


def test_the_new_instance_trains_until_the_recalled_one_does(pair: World) -> None:
    job = looking(pair)
    pair.tick(1)
    pair.set_target(job, 1)
    pair.tick(1, agents=False)
    desired, _ = phases(pair, job)["large"]
    assert desired is Desired.PRESENT
    assert not standing(pair, job), "called back"
    pair.tick(4)
    assert [held.offer for held in pair.training(job)] == ["small"]


def test_the_old_instance_leaves_once_the_new_size_is_measured(pair: World) -> None:
    job = looking(pair)
    measure(pair, job)
    pair.tick(4)
    assert [held.offer for held in pair.store.instances.of_job(job)] == ["large"]
    assert pair.clock.now() - 1_000_000.0 < STANDBY_SECONDS + 30
    pair.assert_nothing_leaked()


def test_standby_ends_after_its_time_also_where_nothing_is_measured(pair: World) -> None:
    job = looking(pair)
    pair.tick(int(STANDBY_SECONDS / 2) + 4)
    assert [held.offer for held in pair.store.instances.of_job(job)] == ["large"]
    assert pair.cloud.launch_calls == 2
    pair.assert_nothing_leaked()


def test_a_measured_size_is_moved_to_without_standby(pair: World) -> None:
    job = pair.submit()
    pair.set_target(job, 1)
    pair.tick(6)
    measure(pair, job)
    pair.set_target(job, 1, "large")
    for _ in range(10):
        pair.tick(1)
        assert not standing(pair, job)
    assert [held.offer for held in pair.training(job)] == ["large"]


def test_growing_on_the_same_offer_pauses_nothing(pair: World) -> None:
    job = pair.submit()
    pair.set_target(job, 1)
    pair.tick(6)
    pair.set_target(job, 3)
    for _ in range(8):
        pair.tick(1)
        assert not standing(pair, job)
    assert len(pair.training(job)) == 3


def test_without_room_for_both_nothing_stands_by(tmp_path: Path) -> None:
    world = World(tmp_path, devices=2)
    job = world.submit()
    world.set_target(job, 2)
    world.tick(6)
    world.policy.release_first = True
    world.set_target(job, 1, "large")
    for _ in range(10):
        world.tick(1)
        assert not standing(world, job)
    assert [held.offer for held in world.training(job)] == ["large"]


def test_a_job_that_wants_the_room_gets_it_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, devices=3)
    small, large = world.cloud.sold
    world.cloud.sold = (small, replace(large, device_kind="gpu"))
    job = looking(world)
    other = world.submit("other")
    world.set_target(other, 1)
    world.tick(1)
    assert not standing(world, job)
    world.tick(8)
    assert len(world.training(other)) == 1
    world.assert_nothing_leaked()


def test_another_network_is_moved_to_without_standby(pair: World) -> None:
    """The job goes there by its checkpoint, and would have to come back by one."""
    far = replace(offer("far", 1, "0.05", "elsewhere"), device_kind="gpu")
    pair.cloud.sold = (*pair.cloud.sold, far)
    job = pair.submit()
    pair.set_target(job, 1)
    pair.tick(6)
    pair.set_target(job, 1, "far")
    for _ in range(12):
        pair.tick(1)
        assert not standing(pair, job)
    assert [held.offer for held in pair.training(job)] == ["far"]


def test_a_job_that_is_stopped_releases_what_stands_by_at_once(pair: World) -> None:
    job = looking(pair)
    pair.store.jobs.request_stop(job, pair.clock.now())
    pair.tick(1)
    assert not standing(pair, job)
    pair.tick(4)
    assert pair.store.instances.of_job(job) == ()
    pair.assert_nothing_leaked()


def test_a_budget_that_is_used_up_releases_what_stands_by(pair: World) -> None:
    job = looking(pair, objective=Objective(budget_usd=Decimal("0.0025")))
    for _ in range(40):
        pair.tick(1)
        if pair.store.jobs.get(job).phase is JobPhase.STOPPING:
            break
    assert pair.store.jobs.get(job).phase is JobPhase.STOPPING
    pair.tick(1)
    assert not standing(pair, job)


def test_frozen_standby_ends_at_once(pair: World) -> None:
    job = looking(pair)
    pair.store.settings.freeze(Freeze(pair.clock.now(), "ada"))
    pair.tick(1)
    assert not standing(pair, job)
    pair.tick(3)
    assert [held.offer for held in pair.store.instances.of_job(job)] == ["large"]


def test_a_controller_that_starts_again_ends_standby(pair: World) -> None:
    job = looking(pair)
    pair.restart()
    assert standing(pair, job) == ["small"], "it is written down"
    pair.clock.advance(STANDBY_SECONDS + 1)
    pair.tick(1)
    assert not standing(pair, job)
    pair.tick(4)
    pair.assert_nothing_leaked()


def test_when_the_new_instance_is_lost_the_old_one_trains_again(pair: World) -> None:
    job = looking(pair)
    launches = pair.cloud.launch_calls
    pair.policy.targets.pop(job)  # hold what is held
    large = next(held for held in pair.training(job) if held.offer == "large")
    pair.cloud.lose(large.cloud_id or "")
    pair.tick(4)
    assert [held.offer for held in pair.training(job)] == ["small"]
    assert pair.cloud.launch_calls == launches
    pair.assert_nothing_leaked()


def test_paused_instances_are_paid_for(pair: World) -> None:
    job = looking(pair)
    costing = sum(held.costing_usd_per_hour for held in pair.store.instances.of_job(job))
    assert costing == Decimal("0.10") + Decimal("0.19")
    before = pair.cloud.billed_usd()
    pair.tick(1)
    assert pair.cloud.billed_usd() - before == pytest.approx(Decimal("0.29") * 2 / 3600)


def test_what_was_looked_at_leaves_also_where_the_job_moves_on_to_a_third_offer(
    pair: World,
) -> None:
    """Or the instance that was too slow would train on beside the one called back."""
    pair.cloud.sold = (*pair.cloud.sold, replace(offer("third", 1, "0.05"), device_kind="tpu"))
    job = looking(pair)
    pair.tick(1)
    measure(pair, job)
    pair.set_target(job, 1)
    pair.tick(1, agents=False)
    pair.report_from_agents()
    pair.set_target(job, 1, "third")
    pair.tick(1, agents=False)
    desired = {
        held.offer: (held.desired, held.stands_by) for held in pair.store.instances.of_job(job)
    }
    assert desired == {
        "small": (Desired.PRESENT, False),
        "large": (Desired.ABSENT, False),
        "third": (Desired.PRESENT, False),
    }
    pair.tick(6)
    assert standing(pair, job) == ["small"], "of two offers the last one stands by"


class Seen:
    """A policy that keeps the last snapshot and goes on as before."""

    def __init__(self, world: World) -> None:
        self._plan = world.policy.plan
        self.snapshot: Snapshot | None = None
        world.policy.plan = self.plan  # type: ignore[method-assign]

    def plan(self, snapshot: Snapshot) -> object:
        self.snapshot = snapshot
        return self._plan(snapshot)


def test_a_snapshot_tells_what_stands_by_beside_what_is_held(pair: World) -> None:
    seen = Seen(pair)
    pair.restart()
    looking(pair)
    pair.tick(1)
    assert seen.snapshot is not None
    (job,) = seen.snapshot.jobs
    assert job.held == job.trained == Allocation("large", 1, 1)
    assert job.standby == Allocation("small", 1, 1)
