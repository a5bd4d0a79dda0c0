"""Jobs that hold nothing say why, also where no decision does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import Snapshot
from tests.controller.world import World


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)


def test_jobs_that_wait_while_no_plan_can_be_made_say_so(world: World) -> None:
    running = world.submit()
    world.set_target(running, 1)
    world.tick(6)
    planned_seconds = world.controller.status.planned_seconds[running]
    plan = world.policy.plan

    def broken_for_two(snapshot: Snapshot) -> Plan:
        if len(snapshot.jobs) == 2:
            raise ZeroDivisionError("no solution")
        return plan(snapshot)

    world.policy.plan = broken_for_two  # type: ignore[method-assign]
    waiting = world.submit("waiting")
    world.tick(6)
    status = world.controller.status
    assert set(status.job_troubles) == {waiting}
    assert "ZeroDivisionError: no solution" in status.job_troubles[waiting]
    assert status.planned_seconds == {running: planned_seconds}, "no later plan keeps the decision"
    world.policy.plan = plan  # type: ignore[method-assign]
    world.tick(6)
    assert status.job_troubles == {}
    assert status.planned_seconds[running] == status.planned_seconds[waiting] > planned_seconds


def test_jobs_that_wait_before_any_provider_has_answered_say_so(world: World) -> None:
    job = world.submit()
    world.cloud.offers = lambda: []  # type: ignore[method-assign]
    world.tick(2)
    trouble = world.controller.status.job_troubles[job]
    assert trouble == "can't be planned: no provider has reported an offer yet"


def test_a_job_whose_offer_was_refused_says_so_while_the_policy_insists(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    now_seconds = world.clock.now()
    world.store.capacity.refused(
        "small", "QuotaExceeded", now_seconds, now_seconds + 60, "no vCPU"
    )
    world.tick(3)
    trouble = world.controller.status.job_troubles[job]
    assert trouble.startswith("small is not ordered again yet") and "no vCPU" in trouble
    world.tick(40)
    assert world.controller.status.job_troubles == {} and len(world.training(job)) == 1


def test_a_job_that_awaits_the_end_of_other_instances_says_so(tmp_path) -> None:
    world = World(tmp_path)
    world.settings = replace(world.settings, fleet_usd_per_hour=0.25)
    world.restart()
    leaving, waiting = world.submit("leaving"), world.submit("waiting")
    world.set_target(leaving, 2)
    world.tick(6)
    assert len(world.training(leaving)) == 2
    world.set_target(waiting, 2)
    world.tick(2)
    trouble = world.controller.status.job_troubles[waiting]
    assert trouble.startswith("the limits leave no room for small")
    world.set_target(leaving, 0)
    world.tick(20)
    assert world.controller.status.job_troubles == {} and len(world.training(waiting)) == 2


def test_a_job_whose_only_instance_leaves_and_takes_the_room_says_so(tmp_path) -> None:
    world = World(tmp_path)
    world.settings = replace(world.settings, fleet_usd_per_hour=0.15)
    world.restart()
    job = world.submit()
    world.set_target(job, 1)
    world.tick(6)
    (held,) = world.training(job)
    assert world.controller.status.job_troubles == {}
    world.store.instances.release(held.id, world.clock.now())  # as one without heartbeats
    world.tick(1)
    trouble = world.controller.status.job_troubles[job]
    assert trouble.startswith("the limits leave no room for small")
    world.tick(20)
    assert world.controller.status.job_troubles == {} and len(world.training(job)) == 1
