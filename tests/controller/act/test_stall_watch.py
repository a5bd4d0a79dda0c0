from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from autoscaler.controller.act.stall_watch import STALL_OVER
from autoscaler.domain.activity import STALL, Activity
from autoscaler.domain.facts import Fact
from autoscaler.domain.job import JobPhase, StallPolicy
from tests.controller.world import World


def train(world: World, stalls: StallPolicy = StallPolicy.TELL) -> str:
    job = world.submit(stalls=stalls)
    world.set_target(job, 2)
    world.tick(6)
    assert len(world.training(job)) == 2
    world.tick(2, seconds=200.0)  # since when nothing has changed
    return job


def show(world: World, job: str, activity: Activity | None, ticks: int = 1) -> None:
    """Let the agents of a job report an activity, and the controller see it."""
    facts: Mapping[str, str] = {Fact.ACTIVITY: "" if activity is None else activity.text}
    for held in world.training(job):
        world.store.instances.record_node(held.id, held.phase, world.clock.now(), facts)
    world.tick(ticks)


def events(world: World, job: str, kind: str) -> list[str]:
    return [event.text for event in world.store.events.latest(job) if event.kind == kind]


DEADLOCK = Activity(180.0, 500, 0.5)
EVALUATION = Activity(3000.0, 500, 0.5, "evaluation", 600.0)


def test_a_stall_is_told_once_and_its_end_too(world: World) -> None:
    job = train(world)
    show(world, job, DEADLOCK, ticks=5)
    assert events(world, job, STALL) == [
        "no step: no step for 180 s, more than 120 s; a step took 0.5 s"
    ]
    assert world.controller.status.stalls[job].startswith("no step for 180 s")
    assert world.store.jobs.get(job).phase is JobPhase.RUNNING
    show(world, job, None)
    assert events(world, job, STALL_OVER) == ["it trains again after: no step"]
    assert world.controller.status.stalls == {}


def test_a_job_that_wants_to_be_paused_gives_its_instances_back(world: World) -> None:
    job = train(world, StallPolicy.PAUSE)
    show(world, job, DEADLOCK, ticks=10)
    record = world.store.jobs.get(job)
    assert record.phase is JobPhase.STOPPED
    assert record.cause is not None
    assert f"castor resume {job}" in record.cause
    assert world.cloud.running() == []
    world.assert_nothing_leaked()


@pytest.mark.parametrize(
    "activity",
    [None, EVALUATION, Activity(90.0, 500, 0.5), Activity(500.0, 500, 60.0)],
    ids=["steps", "evaluation", "a slow step", "slow steps"],
)
def test_no_healthy_job_is_paused(world: World, activity: Activity | None) -> None:
    job = train(world, StallPolicy.PAUSE)
    show(world, job, activity, ticks=10)
    assert world.store.jobs.get(job).phase is JobPhase.RUNNING
    assert events(world, job, STALL) == []


def test_replicas_that_wait_for_one_that_boots_are_no_stall(world: World) -> None:
    job = train(world, StallPolicy.PAUSE)
    world.set_target(job, 3)
    world.tick(1, agents=False)
    show(world, job, DEADLOCK)
    assert events(world, job, STALL) == []
    assert world.store.jobs.get(job).phase is JobPhase.RUNNING


def test_replicas_that_wait_for_one_in_a_phase_are_no_stall_until_it_ends(world: World) -> None:
    job = train(world, StallPolicy.PAUSE)
    waiting = Activity(1500.0, 500, 0.5)
    saving = Activity(1500.0, 500, 0.5, "checkpoint", 2100.0)

    def show_each(*activities: Activity | None) -> None:
        for held, activity in zip(world.training(job), activities, strict=True):
            facts: Mapping[str, str] = {Fact.ACTIVITY: "" if activity is None else activity.text}
            world.store.instances.record_node(held.id, held.phase, world.clock.now(), facts)
        world.tick(1)

    show_each(saving, waiting)
    show_each(None, waiting)  # the agent of the other one has not reported its step yet
    assert events(world, job, STALL) == []
    show_each(replace(saving, phase_seconds=-60.0), waiting)
    world.tick(1, seconds=200.0)
    assert len(events(world, job, STALL)) == 1


def test_a_malformed_activity_is_none(world: World) -> None:
    job = train(world, StallPolicy.PAUSE)
    facts: Mapping[str, str] = {Fact.ACTIVITY: '{"quiet_seconds": "long"}'}
    for held in world.training(job):
        world.store.instances.record_node(held.id, held.phase, world.clock.now(), facts)
    world.tick(3)
    assert world.store.jobs.get(job).phase is JobPhase.RUNNING
