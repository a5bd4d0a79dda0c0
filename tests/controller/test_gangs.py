"""Gangs in the whole controller: ordered, given back and lost as one unit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscaler.controller.jobs.gangs import LONGEST_PART_SECONDS, Gang, gangs_of
from autoscaler.domain.errors import InsufficientCapacity
from autoscaler.domain.instance import CloudInstance, CloudState, Desired
from autoscaler.domain.job import ParallelismSpec
from tests.controller.cloud import offer
from tests.controller.world import World


def submitted(world: World, target: int, shard: int = 2) -> str:
    job = world.submit("sharded", maximum=8, parallelism=ParallelismSpec(shard=shard))
    world.set_target(job, target)
    return job


def gangs(world: World, job: str) -> tuple[Gang, ...]:
    return gangs_of(world.store.instances.of_job(job))


def texts(world: World, job: str, kind: str) -> list[str]:
    return [event.text for event in world.store.events.latest(job, 50) if event.kind == kind]


def test_gangs_are_ordered_whole(world: World) -> None:
    job = submitted(world, 4)
    world.tick(10)
    assert [(gang.number, gang.size, gang.trains) for gang in gangs(world, job)] == [
        (1, 2, True),
        (2, 2, True),
    ]
    world.set_target(job, 2)
    world.tick(10)
    assert [(gang.number, gang.is_whole) for gang in gangs(world, job)] == [(1, True)]


def test_a_gang_is_ordered_only_if_the_limits_permit_all_of_it(tmp_path: Path) -> None:
    world = World(tmp_path, devices=3)
    job = submitted(world, 4)
    world.tick(10)
    assert len(world.training(job)) == len(world.cloud.running()) == 2
    assert world.cloud.launch_calls == 2


def test_a_target_of_part_of_a_gang_is_cut_to_whole_ones(world: World) -> None:
    job = submitted(world, 3)
    world.tick(10)
    assert len(world.training(job)) == len(world.cloud.running()) == 2


@pytest.mark.parametrize("accepted", [0, 1])
def test_a_refused_member_gives_the_gang_back(world: World, accepted: int) -> None:
    refused = iter([*[False] * accepted, True])

    def refuse(call: str) -> None:
        if call == "launch" and next(refused, False):
            raise InsufficientCapacity("no capacity")

    world.cloud.before_call = refuse
    job = submitted(world, 2)
    world.tick(3)
    assert not world.cloud.running()
    assert any("gang 1 lost" in text for text in texts(world, job, "gang given back"))
    world.tick(30)
    assert [gang.number for gang in gangs(world, job)] == [2]
    assert len(world.training(job)) == 2
    world.assert_nothing_leaked()


def test_a_lost_member_takes_its_gang_out_and_the_gang_is_bought_again_whole(
    world: World,
) -> None:
    job = submitted(world, 4)
    world.tick(10)
    first, second = gangs(world, job)
    world.cloud.lose(first.members[1].cloud_id or "")
    world.tick()
    assert world.store.instances.get(first.members[0].id).desired is Desired.ABSENT
    assert all(
        world.store.instances.get(held.id).desired is Desired.PRESENT for held in second.members
    )
    world.tick(10)
    assert [(gang.number, gang.trains) for gang in gangs(world, job)] == [(2, True), (3, True)]
    assert texts(world, job, "gang given back") == [
        f"gang 1 lost {first.members[1].id}: the other one is given back"
    ]
    world.assert_nothing_leaked()


def test_a_notice_for_one_member_drains_the_gang_at_the_next_tick(world: World) -> None:
    job = submitted(world, 2)
    world.tick(10)
    (gang,) = gangs(world, job)
    now_seconds = world.clock.now()
    world.store.instances.take_back(gang.members[0].id, now_seconds + 120.0, now_seconds)
    world.tick()
    assert world.store.instances.get(gang.members[1].id).desired is Desired.ABSENT


def test_a_member_that_never_joins_ends_the_gang(world: World) -> None:
    job = submitted(world, 2)
    world.tick(2)
    silent = gangs(world, job)[0].members[1]
    record = world.store.instances.record_node
    world.store.instances.record_node = (  # type: ignore[method-assign]
        lambda instance, *values: silent if instance == silent.id else record(instance, *values)
    )
    world.tick(50, seconds=20.0)
    ended = [world.store.instances.get(held.id) for held in gangs_of([silent])[0].members]
    assert all(held.desired is Desired.ABSENT for held in ended)
    assert [gang.trains for gang in gangs(world, job)] == [True]


def test_a_gang_of_which_part_waits_in_a_queue_is_given_back_and_the_offer_avoided(
    world: World,
) -> None:
    seen = world.cloud._seen

    def queued(record: dict[str, Any]) -> CloudInstance:
        instance = seen(record)
        if instance.id != "cloud-1" or instance.state is CloudState.TERMINATED:
            return instance
        return replace(instance, state=CloudState.QUEUED, launched_seconds=None)

    world.cloud._seen = queued  # type: ignore[method-assign]
    job = submitted(world, 2)
    world.tick(int(LONGEST_PART_SECONDS / 20) - 2, seconds=20.0)
    (gang,) = gangs(world, job)
    assert gang.is_whole, "the rest may still come"
    world.tick(4, seconds=20.0)
    assert all(
        world.store.instances.get(held.id).desired is Desired.ABSENT for held in gang.members
    )
    assert "small" in world.store.capacity.unavailable(world.clock.now())
    (text,) = texts(world, job, "gang given back")
    assert text.startswith("gang 1: 1 of 2 instances had capacity for 12 min")


def test_a_gang_lies_in_the_zone_of_its_offer(world: World) -> None:
    world.cloud.sold = (
        replace(offer(), order_group="group"),
        replace(offer("elsewhere"), zone="there", order_group="group"),
    )
    job = submitted(world, 2)
    world.tick(10)
    members = gangs(world, job)[0].members
    assert [(held.offer, held.alternatives) for held in members] == [("small", ())] * 2


FAULTS = st.lists(
    st.tuples(st.sampled_from(["lose", "refuse", "restart", "target"]), st.integers(0, 5)),
    max_size=8,
)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(faults=FAULTS)
def test_whatever_happens_only_whole_gangs_are_left(
    tmp_path_factory: pytest.TempPathFactory, faults: list[tuple[str, int]]
) -> None:
    world = World(tmp_path_factory.mktemp("world"), devices=7)
    job = submitted(world, 4)
    for kind, number in faults:
        running = world.cloud.running()
        if kind == "lose" and running:
            world.cloud.lose(running[number % len(running)].id)
        elif kind == "refuse":
            world.cloud.refusals = [InsufficientCapacity("no capacity")]
        elif kind == "restart":
            world.restart()
        else:
            world.set_target(job, number)
        world.tick(1 + number)
        bought = [held for held in world.store.instances.of_job(job) if held.cloud_id]
        assert len(bought) <= 7
    world.cloud.refusals = []
    world.set_target(job, 4)
    world.tick(150)
    assert [(gang.is_whole, gang.trains) for gang in gangs(world, job)] == [(True, True)] * 2
    assert len(world.cloud.running()) == 4
    world.assert_nothing_leaked()
