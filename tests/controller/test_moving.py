"""Moves from one offer to another: what comes first, and what becomes of the job meanwhile."""

from __future__ import annotations

from autoscaler.domain.instance import Desired
from tests.controller.world import World


def test_a_move_keeps_the_old_instances_until_the_new_ones_train(world: World) -> None:
    job = world.submit()
    world.wish(job, 2)
    world.tick(6)
    world.wish(job, 1, "large")
    world.tick(2)
    assert {held.offer for held in world.store.instances.of_job(job)} == {"small", "large"}
    assert len(world.training(job)) == 2
    world.tick(8)
    assert [held.offer for held in world.store.instances.of_job(job)] == ["large"]
    world.assert_nothing_leaked()


def test_without_room_for_both_the_old_instances_go_first(tmp_path) -> None:
    world = World(tmp_path, devices=2)
    job = world.submit()
    world.wish(job, 2)
    world.tick(6)
    world.wishes.release_first = True
    world.wish(job, 1, "large")
    world.tick(10)
    assert [held.offer for held in world.training(job)] == ["large"]
    assert world.cloud.launch_calls == 3, "nothing was asked for that there was no room for"


def test_a_move_that_stops_first_orders_at_once_and_trains_again(world: World) -> None:
    job = world.submit()
    world.wish(job, 1)
    world.tick(6)
    world.wishes.release_first = True
    world.wish(job, 1, "large")
    world.tick(1)
    desired = {held.offer: held.desired for held in world.store.instances.of_job(job)}
    assert desired == {"small": Desired.ABSENT, "large": Desired.PRESENT}
    world.tick(2)
    assert not world.training(job)
    world.tick(8)
    assert [held.offer for held in world.training(job)] == ["large"]
    assert [held.offer for held in world.store.instances.of_job(job)] == ["large"]
    world.assert_nothing_leaked()
