from __future__ import annotations

import pytest

from autoscaler.domain.offer import Purchase
from autoscaler.market.queues import Wait, expected_waits, left_seconds
from autoscaler.market.zones import HORIZON_SECONDS, PurchasePlace

NOW = 1_000_000.0
HERE = PurchasePlace("gcp", "a2-highgpu-1g", "us-central1-a", Purchase.FLEX_START)
THERE = HERE._replace(zone="us-central1-b")
OTHER = HERE._replace(instance_type="g2-standard-4")
TOLD = dict.fromkeys((HERE, THERE, OTHER), 600.0)


def waited(seconds: float, was_filled: bool = True, ago_seconds: float = 0.0) -> Wait:
    return Wait(NOW - ago_seconds - seconds, NOW - ago_seconds, was_filled)


def usual(*seen: Wait) -> dict[PurchasePlace, float]:
    return expected_waits({HERE: seen}, TOLD, NOW)


def test_before_any_wait_was_seen_it_is_what_was_told() -> None:
    assert expected_waits({}, TOLD, NOW) == TOLD


def test_waits_are_learnt_and_tell_of_other_zones_of_the_type() -> None:
    found = usual(*[waited(30.0)] * 9)
    assert found[THERE] == pytest.approx(87.0)
    assert found[HERE] == pytest.approx(35.7)
    assert found[OTHER] == 600.0
    found = usual(*[waited(3000.0)] * 9)
    assert found[HERE] > found[THERE] > found[OTHER]


def test_the_longer_an_order_waits_in_vain_the_longer_it_is_believed_to() -> None:
    waits = [usual(waited(hours * 3600.0, False))[HERE] for hours in (0, 0.5, 1, 2, 4)]
    assert waits == sorted(waits) and len(set(waits)) > 3
    assert waits[-1] == HORIZON_SECONDS


def test_what_was_long_ago_counts_for_less() -> None:
    recent, old = usual(waited(3600.0, False)), usual(waited(3600.0, False, 2 * 86400.0))
    assert 600.0 < old[HERE] < recent[HERE]


def test_an_order_that_waits_is_not_left_for_another_queue_of_which_nothing_is_known() -> None:
    for hours in (0.0, 0.5, 1.0, 1.5):
        found = usual(waited(hours * 3600.0, False))
        assert left_seconds(found[HERE]) < found[THERE]
    known = expected_waits({HERE: [waited(3600.0, False)], THERE: [waited(20.0)] * 30}, TOLD, NOW)
    assert left_seconds(known[HERE]) > known[THERE], "one that is known to be quick"
