from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.goodput import BatchBounds, NoiseCurve, NoiseScale
from autoscaler.domain.objective import AfterDeadline, Objective, Preference
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.forecasts.frontier import Frontier, frontier, lower_hull
from tests.economics import cases

POINT = st.tuples(st.floats(1, 1e4), st.floats(0, 1e4))
ADAPTIVE = BatchBounds(initial=64, maximum=4096, device_maximum=512, adaptive=True)


def found(job: JobSnapshot, **changes: object) -> Frontier:
    job = replace(job, **changes)  # type: ignore[arg-type]
    result = frontier(job, cases.snapshot(job))
    assert result is not None
    return result


def job(**changes: object) -> JobSnapshot:
    uncertain = cases.model(draws=32, spread=0.1)
    plain = cases.job(models=uncertain, remaining_examples=2e6, submitted_seconds=cases.NOW)
    return replace(plain, **changes)  # type: ignore[arg-type]


def by(**changes: object) -> Objective:
    return Objective(**changes)  # type: ignore[arg-type]


@given(st.lists(POINT, min_size=1, max_size=30), st.floats(0, 100))
def test_some_corner_is_best_at_any_value_of_time(
    points: list[tuple[float, float]], value: float
) -> None:
    seconds, usd = (np.array(column) for column in zip(*points, strict=True))
    cost = usd + value * seconds
    assert cost[lower_hull(seconds, usd)].min() == pytest.approx(cost.min())


def test_the_frontier_rises_in_cost_and_falls_in_time() -> None:
    corners = found(job()).corners
    assert len(corners) > 1
    for cheap, dear in pairwise(corners):
        assert cheap.usd.median <= dear.usd.median
        assert cheap.seconds.median > dear.seconds.median
        assert (cheap.from_value_of_time or 0.0) < (dear.from_value_of_time or 0.0)
    assert corners[0].from_value_of_time == 0.0
    for corner in corners:
        assert corner.usd.median < corner.usd.ninety_percent
        assert corner.seconds.median < corner.seconds.ninety_percent


def test_the_ends_of_the_frontier_are_the_cheapest_and_the_fastest() -> None:
    cheap = found(job(objective=by(preference=Preference.CHEAPEST)))
    fast = found(job(objective=by(preference=Preference.FASTEST)))
    assert cheap.chosen is not None and fast.chosen is not None
    assert cheap.chosen.first == cheap.corners[0].first
    assert fast.chosen.first == fast.corners[-1].first
    assert cheap.value_of_time == 0.0


def test_a_deadline_lands_on_the_cheapest_that_keeps_it() -> None:
    corners = found(job()).corners
    between = (corners[0].seconds.median + corners[-1].seconds.ninety_percent) / 2
    plan = found(job(objective=by(deadline_seconds=cases.NOW + between)))
    assert plan.chosen is not None and plan.shortfall is None
    assert plan.chance is not None and plan.chance >= 0.9
    assert plan.chosen.seconds.ninety_percent <= between * (1 + 1e-9)
    assert plan.chosen.usd.median < corners[-1].usd.median
    # A sequence of two corners lies between them.
    ends = [corner for corner in corners if corner.first in (plan.chosen.first, plan.chosen.then)]
    assert 0 < plan.chosen.first_share <= 1 and ends


def test_a_deadline_out_of_reach_says_what_is_in_reach_and_what_happens() -> None:
    plan = found(job(objective=by(deadline_seconds=cases.NOW + 60.0)))
    assert plan.shortfall is not None and plan.chance == 0.0
    asked, _, in_reach = plan.shortfall.partition(": ")
    assert asked == "a deadline in 60 s can't be kept at 90 %"
    assert in_reach.startswith("the earliest possible finish is in ")
    assert plan.chosen is not None, "it goes on, balanced"
    stops = by(deadline_seconds=cases.NOW + 60.0, after_deadline=AfterDeadline.STOP)
    assert found(job(objective=stops)).chosen is None


def test_a_budget_lands_on_the_fastest_that_keeps_it() -> None:
    corners = found(job()).corners
    enough = Decimal(str(round(corners[0].usd.ninety_percent * 1.1, 4)))
    plan = found(job(objective=by(budget_usd=enough)))
    assert plan.chosen is not None and plan.shortfall is None
    assert plan.chosen.usd.ninety_percent <= float(enough) * (1 + 1e-9)
    little = found(job(objective=by(budget_usd=Decimal("0.0001"))))
    assert little.shortfall is not None and "the least possible cost is" in little.shortfall
    assert little.chosen is not None and little.chosen.first == little.corners[0].first


def test_two_ends_of_which_only_one_can_be_kept_say_what_each_leaves_of_the_other() -> None:
    corners = found(job()).corners
    soon = corners[-1].seconds.ninety_percent * 1.3
    little = Decimal(str(round(corners[0].usd.ninety_percent * 1.1, 4)))
    plan = found(job(objective=by(deadline_seconds=cases.NOW + soon, budget_usd=little)))
    assert plan.shortfall is not None
    assert "in time it costs" in plan.shortfall
    assert "within the budget it takes" in plan.shortfall


def test_a_deadline_out_of_reach_leaves_the_budget_as_it_is() -> None:
    corners = found(job()).corners
    soon = cases.NOW + 60.0
    much = Decimal(str(round(corners[-1].usd.ninety_percent * 2, 4)))
    plan = found(job(objective=by(deadline_seconds=soon, budget_usd=much)))
    assert plan.chosen is not None and plan.shortfall is not None
    assert plan.chosen.first == found(job(objective=by(budget_usd=much))).chosen.first
    plan = found(job(objective=by(deadline_seconds=soon, budget_usd=Decimal("0.0001"))))
    assert plan.chosen is not None and plan.value_of_time == 0.0
    assert plan.chosen.first == corners[0].first, "as far as it goes, for the least in all"


def test_noise_that_is_remembered_to_grow_makes_large_sizes_faster() -> None:
    noise = NoiseScale(64, 1.0, 1.0, 0.1)
    growing = NoiseCurve((0.0, 2e6), (64.0, 64_000.0))
    now = found(job(batch=ADAPTIVE, noise=noise))
    later = found(job(batch=ADAPTIVE, noise=noise, noise_curve=growing))
    assert later.corners[-1].seconds.median < 0.9 * now.corners[-1].seconds.median


def test_without_a_known_end_there_are_only_rates() -> None:
    known = found(job(remaining_examples=None))
    assert known.corners == () and known.chosen is None
    prices = [rate.usd_per_hour for rate in known.rates]
    assert prices == sorted(prices) and prices[0] > 0
    assert found(job()).rates == ()


def test_what_no_offer_can_run_has_no_frontier() -> None:
    nowhere = job(models={})
    assert frontier(nowhere, cases.snapshot(nowhere)) is None
