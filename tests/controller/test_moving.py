"""Moves from one offer to another: what comes first, and what becomes of the job meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.instance import Desired
from autoscaler.store.repositories.measurements import START_DURATION
from tests.controller.cloud import offer
from tests.controller.world import World


def test_a_move_keeps_the_old_instances_until_the_new_ones_train(world: World) -> None:
    job = world.submit()
    world.set_target(job, 2)
    world.tick(6)
    world.set_target(job, 1, "large")
    world.tick(2)
    assert {held.offer for held in world.store.instances.of_job(job)} == {"small", "large"}
    assert len(world.training(job)) == 2
    world.tick(8 + 13)
    assert [held.offer for held in world.store.instances.of_job(job)] == ["large"]
    world.assert_nothing_leaked()


def test_without_room_for_both_the_old_instances_go_first(tmp_path) -> None:
    world = World(tmp_path, devices=2)
    job = world.submit()
    world.set_target(job, 2)
    world.tick(6)
    world.policy.release_first = True
    world.set_target(job, 1, "large")
    world.tick(10)
    assert [held.offer for held in world.training(job)] == ["large"]
    assert world.cloud.launch_calls == 3, "nothing was asked for that there was no room for"


def test_a_move_that_stops_first_orders_at_once_and_trains_again(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.tick(6)
    world.policy.release_first = True
    world.set_target(job, 1, "large")
    world.tick(1)
    desired = {held.offer: held.desired for held in world.store.instances.of_job(job)}
    assert desired == {"small": Desired.ABSENT, "large": Desired.PRESENT}
    world.tick(2)
    assert not world.training(job)
    world.tick(8)
    assert [held.offer for held in world.training(job)] == ["large"]
    assert [held.offer for held in world.store.instances.of_job(job)] == ["large"]
    world.assert_nothing_leaked()


def test_nothing_is_kept_beyond_the_end_of_its_offer(world: World) -> None:
    """The new instance may come late, or never."""
    job = world.submit()
    world.set_target(job, 1)
    world.tick(6)
    small, large = world.cloud.sold
    end_seconds = world.clock.now() + 200.0
    world.cloud.sold = (replace(small, until_seconds=end_seconds), large)
    world.set_target(job, 1, "large")
    world.tick(2)
    (old,) = (held for held in world.store.instances.of_job(job) if held.offer == "small")
    assert (old.desired, old.reclaim_seconds) == (Desired.PRESENT, None)
    world.tick(1, seconds=100.0, agents=False)
    (old,) = (held for held in world.store.instances.of_job(job) if held.offer == "small")
    assert (old.desired, old.reclaim_seconds) == (Desired.ABSENT, end_seconds)
    (event,) = (event for event in world.store.events.latest(job) if event.kind == "offer ends")
    assert event.text == f"{old.id} leaves: small ends in 96 s"
    world.tick(8)
    assert [held.offer for held in world.training(job)] == ["large"]
    world.assert_nothing_leaked()


@pytest.fixture
def wide(world: World) -> World:
    """Return a world with an offer in another network."""
    world.cloud.sold = (*world.cloud.sold, offer("far", 1, "0.05", "elsewhere"))
    return world


def test_a_move_to_another_network_waits_at_the_door_until_the_old_have_left(
    wide: World,
) -> None:
    job = wide.submit()
    wide.set_target(job, 2)
    wide.tick(6)
    wide.set_target(job, 2, "far")
    seen: list[tuple[int, int]] = []
    for _ in range(10):
        wide.tick(1)
        training = [held.network for held in wide.training(job)]
        assert len(set(training)) <= 1, "they can't reach each other"
        seen.append((training.count(""), training.count("elsewhere")))
    while_they_boot = sum(near == 2 for near, _ in seen)
    assert while_they_boot >= 3, "the old ones train on until the new ones are at the door"
    assert seen[-1] == (0, 2)
    assert [held.offer for held in wide.store.instances.of_job(job)] == ["far", "far"]
    wide.assert_nothing_leaked()
    durations = wide.store.measurements.durations(job)
    near, far = (durations[offer, START_DURATION].seconds for offer in ("small", "far"))
    assert far == pytest.approx(near), "waiting at the door is no start"


def test_one_that_boots_in_another_network_is_given_back_when_the_job_stays(wide: World) -> None:
    job = wide.submit()
    wide.set_target(job, 1)
    wide.tick(6)
    wide.set_target(job, 1, "far")
    wide.tick(2)
    wide.set_target(job, 1)
    wide.tick(8)
    assert [held.offer for held in wide.training(job)] == ["small"]
    assert [held.offer for held in wide.store.instances.of_job(job)] == ["small"]
    wide.assert_nothing_leaked()


def test_of_two_networks_that_boot_at_once_one_is_let_in(wide: World) -> None:
    """Also where it was neither's turn yet: a job changes its mind before anything trains."""
    job = wide.submit()
    wide.set_target(job, 1, "far")
    wide.tick(1)
    wide.set_target(job, 1)
    for _ in range(12):
        wide.tick(1)
        assert len({held.network for held in wide.training(job)}) <= 1
    assert [held.offer for held in wide.training(job)] == ["small"]
    wide.assert_nothing_leaked()
