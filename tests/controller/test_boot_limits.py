"""Instances whose agent never joins: each pool has its own limit, and failed starts cost less."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.cloud import offer
from tests.controller.world import World

LIMIT_SECONDS = 1800.0


@pytest.fixture
def slow(world: World) -> World:
    """A cloud whose only offer may take half an hour until its agent joins."""
    world.cloud.sold = (replace(offer("small"), join_seconds=LIMIT_SECONDS),)
    return world


def given_up(world: World, job: str) -> list[str]:
    events = world.store.events.latest(job, 1000)
    return [event.text for event in events if event.kind == "instance given up"]


def test_an_instance_has_the_time_to_join_that_its_pool_gives(slow: World) -> None:
    job = slow.submit()
    slow.set_target(job, 1)
    slow.tick(59, seconds=30.0, agents=False)
    assert given_up(slow, job) == [], "the default of offers without a limit is 600 s"
    slow.tick(3, seconds=30.0, agents=False)
    (text,) = given_up(slow, job)
    assert "its agent never joined within 30 min" in text and "boot_minutes" in text


def test_the_limit_is_that_of_the_order_if_the_offer_is_sold_no_more(slow: World) -> None:
    job = slow.submit()
    slow.set_target(job, 1)
    slow.tick(2, agents=False)
    slow.cloud.removed = {"small"}
    slow.tick(57, seconds=30.0, agents=False)
    assert given_up(slow, job) == []
    slow.tick(3, seconds=30.0, agents=False)
    assert len(given_up(slow, job)) == 1


def test_starts_that_take_their_whole_limit_are_repeated_ever_less_often(slow: World) -> None:
    """Each pays for half an hour: a wait of ten minutes would pay three quarters of all time."""
    job = slow.submit()
    slow.set_target(job, 1)
    slow.tick(12 * 120, seconds=30.0, agents=False)
    at_first = slow.cloud.launch_calls
    assert 4 <= at_first <= 7
    slow.tick(12 * 120, seconds=30.0, agents=False)
    assert 1 <= slow.cloud.launch_calls - at_first <= 3, "it is tried again for ever"
