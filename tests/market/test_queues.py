from __future__ import annotations

import pytest

from autoscaler.domain.offer import Purchase
from autoscaler.market.queues import Wait, left_seconds, usual_waits
from autoscaler.market.zones import HORIZON_SECONDS, Place

NOW = 1_000_000.0
HERE = Place("gcp", "a2-highgpu-1g", "us-central1-a", Purchase.FLEX_START)
THERE = HERE._replace(zone="us-central1-b")
OTHER = HERE._replace(instance_type="g2-standard-4")
TOLD = dict.fromkeys((HERE, THERE, OTHER), 600.0)


def waited(seconds: float, was_filled: bool = True, ago_seconds: float = 0.0) -> Wait:
    return Wait(NOW - ago_seconds - seconds, NOW - ago_seconds, was_filled)


def usual(*seen: Wait) -> dict[Place, float]:
    return usual_waits({HERE: seen}, TOLD, NOW)


def test_before_any_wait_was_seen_it_is_what_was_told() -> None:
    assert usual_waits({}, TOLD, NOW) == pytest.approx(TOLD, rel=1e-6)


def test_waits_are_learnt_and_tell_of_other_zones_of_the_type() -> None:
    found = usual(*[waited(30.0)] * 8)
    assert found[HERE] < found[THERE] < found[OTHER] == pytest.approx(600.0)
    found = usual(*[waited(3000.0)] * 8)
    assert found[HERE] > found[THERE] > found[OTHER]
    assert 1500.0 < found[HERE] < 4500.0


def test_a_wait_that_has_not_ended_says_that_it_takes_longer() -> None:
    hour, two_hours = usual(waited(3600.0, False)), usual(waited(7200.0, False))
    assert 600.0 < hour[HERE] < two_hours[HERE] <= HORIZON_SECONDS


def test_what_was_long_ago_counts_for_less() -> None:
    week = 7 * 86400.0
    recent, old = usual(waited(7200.0, False)), usual(waited(7200.0, False, week))
    assert 600.0 < old[HERE] < recent[HERE]


def test_an_order_that_waits_is_ahead_of_a_new_one() -> None:
    assert left_seconds(600.0, 0.0) == 600.0
    assert left_seconds(600.0, 200.0) == 400.0
    assert left_seconds(600.0, 6000.0) == 150.0
