"""Scenario of the demonstration without processes: small jobs that share two devices."""

from __future__ import annotations

import pytest

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.objective import Objective
from autoscaler.domain.plan import Action
from tests.economics.cases import NOW, valued
from tests.policies.small_world import Job, World

ONE = Allocation("local-small", 1, 1)
TWO = Allocation("local-small", 2, 1)
VALUE_USD_PER_HOUR = 0.25


def actions(one: Job) -> list[Action]:
    return [decision.action for decision in one.changes]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("scaling", [1.2, 1.45, 1.7])
def test_a_job_grows_gives_way_to_a_deadline_and_grows_again(scaling: float, seed: int) -> None:
    world = World(seed)
    first = Job("first", valued(VALUE_USD_PER_HOUR), scaling, 20000.0)
    world.arrives(first)
    world.run(15)
    assert actions(first) == [Action.START, Action.GROW]
    assert first.seen[0].devices == 1
    assert first.trained == TWO
    arrived_seconds = world.now_seconds
    second = Job("second", Objective(deadline_seconds=arrived_seconds + 180.0), 1.4, 3000.0)
    world.arrives(second)
    world.tick()
    assert (first.held, second.held) == (ONE, ONE)
    assert "/h to second, $" in first.changes[-1].reason
    while "second" in world.jobs:
        assert (first.held, second.held) == (ONE, ONE)
        world.tick()
    assert world.now_seconds < arrived_seconds + 60.0
    assert actions(second) == [Action.START]
    assert first.held == TWO
    world.run(10)
    assert actions(first) == [Action.START, Action.GROW, Action.SHRINK, Action.GROW]


@pytest.mark.parametrize("scaling", [1.45, 1.7])
def test_what_was_taken_from_a_job_early_does_not_keep_it_small_for_ever(scaling: float) -> None:
    world = World()
    first = Job("first", valued(VALUE_USD_PER_HOUR), scaling, 20000.0)
    world.arrives(first)
    world.run(8)
    assert actions(first) == [Action.START, Action.GROW]
    for name in ("second", "third"):
        wants = Objective(deadline_seconds=world.now_seconds + 180.0)
        world.arrives(Job(name, wants, 1.4, 600.0))
        while name in world.jobs:
            world.tick()
        world.run(3)
    world.run(20)
    assert actions(first)[-1] is Action.GROW
    assert first.trained == TWO


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scaling", [0.7, 0.9, 1.05])
def test_what_turns_out_not_to_pay_is_given_back_and_not_tried_again(
    scaling: float, seed: int
) -> None:
    world = World(seed)
    one = Job("one", valued(VALUE_USD_PER_HOUR), scaling, 20000.0)
    world.arrives(one)
    world.run(30)
    assert actions(one) == [Action.START, Action.GROW, Action.SHRINK]
    assert one.trained == ONE


@pytest.mark.parametrize("seed", range(3))
def test_noise_does_not_flap_where_one_and_two_are_worth_the_same(seed: int) -> None:
    world = World(seed)
    # (0.09 + 0.25) / (0.045 + 0.25) = 1.153
    one = Job("one", valued(VALUE_USD_PER_HOUR), 1.153, 20000.0, noise=0.1)
    world.arrives(one)
    world.run(30)
    assert len(one.changes[1:]) <= 2


@pytest.mark.parametrize("value_usd_per_hour", [0.25, 1.0])
def test_a_job_about_to_end_buys_nothing_more(value_usd_per_hour: float) -> None:
    world = World()
    one = Job("one", valued(value_usd_per_hour), 1.7, 1000.0)
    world.arrives(one)
    world.run(10)
    assert actions(one) == [Action.START]


@pytest.mark.parametrize("replan_seconds", [2.0, 10.0, 60.0])
@pytest.mark.parametrize("scaling", [1.2, 1.7])
def test_a_deadline_is_kept_with_one_change_up_and_one_down(
    scaling: float, replan_seconds: float
) -> None:
    world = World(replan_seconds=replan_seconds)
    # Alone it would take 148 s.
    one = Job("one", Objective(deadline_seconds=NOW + 136.0), scaling, 14000.0)
    world.arrives(one)
    while "one" in world.jobs:
        world.tick()
    assert world.now_seconds <= NOW + 136.0 + 2.0
    assert actions(one) == [Action.START, Action.GROW, Action.SHRINK]
