from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.snapshot import Snapshot
from autoscaler.economics.allocation.remaining import unknown_work
from autoscaler.economics.choice.exploration import (
    expected_cost,
    fallback_allocations,
    surely_better,
    worth_starting_on,
)
from autoscaler.economics.choice.switching import cost_to_finish, cost_via_measurement
from tests.economics.cases import LARGE, SMALL, job, model, snapshot
from tests.economics.choice.test_switching import ground_of
from tests.economics.strategies import snapshots

HELD = Allocation("local-small", 1, 1)


@given(snapshots(draws=6, all_measured=False), st.floats(0.0, 0.01))
def test_optimism_comes_from_the_way_back_alone(moment: Snapshot, value: float) -> None:
    (job_snapshot,) = moment.jobs
    at = ground_of(job_snapshot, moment)
    every = at.candidates
    cost = cost_to_finish(at, value, 1e4)
    back = cost_via_measurement(at, value, 1e4, fallback_allocations(every, cost))
    expected = expected_cost(every, cost, back)
    mean = cost.mean(axis=0)
    assert (expected <= mean * (1 + 1e-12)).all()
    assert expected[every.measured] == pytest.approx(mean[every.measured])
    by_hand = [
        sum(min(c, b) for c, b in zip(cost[:, i], back[:, i], strict=True)) / 6
        for i in range(len(every))
    ]
    assert expected[~every.measured] == pytest.approx(np.array(by_hand)[~every.measured])


def test_a_change_between_measured_sizes_must_pay_in_most_draws() -> None:
    job_snapshot = job(held=HELD, models=model(draws=10))
    every = ground_of(job_snapshot, snapshot(job_snapshot, offers=(SMALL,))).candidates
    cost = np.ones((10, len(every)))
    cost[:5, 1] = 0.9
    cost[:6, 2] = 0.9
    assert surely_better(every, cost).tolist() == [False, False, True, False]
    unmeasured = replace(every, measured=np.array([True, False, True, True]))
    assert surely_better(unmeasured, cost).tolist() == [False, True, True, False]
    nowhere = replace(every, measured=np.array([False, True, True, True]))
    assert surely_better(nowhere, cost).all()


def started_on(value_usd_per_hour: float, *offers: str) -> list[str]:
    job_snapshot = job(models=model(measured=()))
    every = ground_of(
        job_snapshot, snapshot(job_snapshot, offers=(SMALL, LARGE, replace(SMALL, id="z")))
    ).candidates
    if offers:
        every = replace(
            every, allowed=np.isin([o.id for o in every.offers], offers)[every.sizes.offer]
        )
    worth = worth_starting_on(every, value_usd_per_hour / 3600)
    return [str(every.allocation(int(index))) for index in np.nonzero(worth)[0]]


def test_a_job_starts_on_the_cheapest_unless_waiting_costs_more() -> None:
    cheapest = ["1 x local-small", "1 x z"]
    assert started_on(0.0) == cheapest
    assert started_on(0.08) == cheapest
    assert started_on(0.10) == ["1 x local-large", "1 x local-large", *cheapest]
    assert started_on(100.0) == started_on(0.10)
    assert started_on(0.0, "local-large") == ["1 x local-large", "1 x local-large"]


def test_where_to_after_a_look() -> None:
    job_snapshot = job(models=model(draws=3, measured=()))
    every = ground_of(job_snapshot, snapshot(job_snapshot, offers=(SMALL,))).candidates
    cost = np.full((3, 4), 9.0)
    cost[0, 3], cost[1, 1], cost[2, 3] = 1.0, 2.0, 3.0
    assert fallback_allocations(every, cost).to.tolist() == [3, 1]
    one_known = replace(every, measured=np.array([True, False, False, False]))
    assert fallback_allocations(one_known, cost).to.tolist() == [0]
    assert fallback_allocations(replace(one_known, held=2), cost).to.tolist() == [2]
    nowhere = replace(every, allowed=np.zeros(4, dtype=bool))
    assert fallback_allocations(nowhere, cost).to.tolist() == []


def test_an_unknown_job_is_as_long_whether_it_is_fast_or_slow() -> None:
    job_snapshot = job(models=model(draws=3, measured=()))
    every = ground_of(job_snapshot, snapshot(job_snapshot, offers=(SMALL, LARGE))).candidates
    cheapest = int(np.argmin(every.usd_per_second))
    seconds = unknown_work(every) * every.seconds_per_example[:, [cheapest]]
    assert seconds == pytest.approx(np.full((3, 1), 3600.0))
