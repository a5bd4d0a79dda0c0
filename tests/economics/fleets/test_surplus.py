from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.offer import Limit, LimitUnit
from autoscaler.domain.snapshot import Snapshot
from autoscaler.economics.choice.demands import ChoiceReason, Demand
from autoscaler.economics.choice.requirements import Requirement
from autoscaler.economics.choice.switching import SwitchContext, cost_to_finish
from autoscaler.economics.fleets.fleet import column_of, fleet_of_one
from autoscaler.economics.fleets.surplus import worth_of_jobs
from autoscaler.economics.pricing.objectives import MOST_TIMES_DEAREST, price_range
from autoscaler.economics.supply.supply import supply_of
from autoscaler.goodput.throughput import FloatArray
from tests.economics.cases import SMALL, devices, job, snapshot
from tests.economics.choice.test_switching import ground_of
from tests.economics.strategies import snapshots

VALUES = st.floats(1e-6, 0.01)
WORKS = st.floats(1.0, 1e6)
FREE = np.zeros(0)


@dataclass(frozen=True)
class Worths:
    """Worth of each candidate, (A,), and of nothing, $ per second."""

    surplus: FloatArray
    nothing: float


def worth(moment: Snapshot, value: float, work: float, prices: FloatArray = FREE) -> Worths:
    """Return the worths to the first job, which may have any allowed candidate."""
    (job_snapshot, *_), supply = moment.jobs, supply_of(moment)
    at = ground_of(job_snapshot, moment)
    candidates = at.candidates
    choice = Demand(
        job=job_snapshot,
        at=at,
        requirement=Requirement(value),
        prices=price_range(job_snapshot, supply, MOST_TIMES_DEAREST),
        remaining=work,
        work=work,
        why=ChoiceReason.LEAST_COST,
        target=None,
        eligible=candidates.allowed,
        expected_usd=np.zeros(len(candidates)),
        cost=np.zeros(candidates.goodput.shape),
    )
    fleet = fleet_of_one(choice)
    fleet.bid = np.array([value])
    surplus, nothing = worth_of_jobs(fleet, prices[None])
    columns = [column_of(candidates, index) for index in range(len(candidates))]
    return Worths(surplus[0, columns], float(nothing[0]))


def first_ground(moment: Snapshot) -> SwitchContext:
    at = ground_of(moment.jobs[0], moment)
    assume(at.candidates.allowed.any())
    return at


@given(snapshots(draws=3), VALUES)
def test_of_a_long_job_it_is_the_value_of_its_progress_less_the_price(
    moment: Snapshot, value: float
) -> None:
    job_snapshot = replace(moment.jobs[0], held=None, trained=None)
    moment = replace(moment, jobs=(job_snapshot,))
    every = first_ground(moment).candidates
    worths = worth(moment, value, 1e13)
    progress = ((every.usd_per_second + value) / every.rate).min()
    expected = progress * every.rate - every.usd_per_second
    assert worths.surplus == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert worths.surplus.max() == pytest.approx(value)
    assert worths.nothing == 0.0


@given(snapshots(draws=3), VALUES, WORKS)
def test_it_is_at_most_the_value_of_time_and_that_where_finishing_costs_least(
    moment: Snapshot, value: float, work: float
) -> None:
    at = first_ground(moment)
    every = at.candidates
    cost = cost_to_finish(at, value, work).mean(axis=0)
    worths = worth(moment, value, work)
    assert worths.surplus[every.allowed].max() == pytest.approx(value)
    best = int(np.argmin(np.where(every.allowed, cost, np.inf)))
    assert worths.surplus[best] == pytest.approx(value)


@given(snapshots(), VALUES, WORKS)
def test_giving_all_back_is_worth_less_than_what_is_held_and_than_the_best(
    moment: Snapshot, value: float, work: float
) -> None:
    every = first_ground(moment).candidates
    worths = worth(moment, value, work)
    if every.held is None:
        assert worths.nothing == 0.0
        return
    assert worths.nothing <= worths.surplus[every.allowed].max()
    if every.allowed[every.held]:
        assert worths.nothing <= worths.surplus[every.held]


def test_progress_is_dearer_where_a_limit_has_a_price_at_the_jobs_own_finish() -> None:
    job_snapshot = job()
    moment = snapshot(job_snapshot, offers=(SMALL,), limits=[devices(4)])
    rate = ground_of(job_snapshot, moment).candidates.rate
    size = np.array([1.0, 2.0, 3.0, 4.0])
    for limit_price in (0.0, 0.05, 1.0):
        progress = ((0.10 + 0.10 * size + limit_price * size) / rate).min()
        prices = np.array([limit_price / 3600])
        worths = worth(moment, 0.10 / 3600, 1e13, prices)
        assert worths.surplus * 3600 == pytest.approx(progress * rate - 0.10 * size, abs=1e-6)


def test_one_that_is_as_well_off_to_stay_as_to_move_is_worth_as_much_here() -> None:
    job_snapshot = job(held=Allocation("local-small", 1, 1), instances=InstanceBounds(1, 2))
    moment = snapshot(job_snapshot, offers=(SMALL,))
    value = 0.10 / 3600
    # From some work in this range on, two instances cost less to finish.
    works = np.linspace(600.0, 3000.0, 200)
    surpluses = [worth(moment, value, work).surplus[0] for work in works]
    assert surpluses[0] == pytest.approx(value)
    assert surpluses[-1] < 0.9 * value
    assert np.abs(np.diff(surpluses)).max() < 0.02 * value


def test_what_trains_is_given_up_for_the_boots_of_both_over_what_is_left() -> None:
    job_snapshot = job(held=Allocation("local-small", 1, 1), instances=InstanceBounds(1, 1))
    moment = snapshot(job_snapshot, offers=(SMALL,))
    worths = worth(moment, 0.10 / 3600, 9000.0)
    paid, waited = 2 * 6 + 3, 2 * 6 + 3
    assert worths.nothing * 3600 == pytest.approx(-(paid * 0.10 + waited * 0.10) / 90)
    assert np.isfinite(worth(moment, 0.10 / 3600, 0.0).nothing)


def test_a_boot_under_way_is_given_up_for_the_boots_of_both_within_the_time_of_one() -> None:
    job_snapshot = job(held=Allocation("local-small", 2, 1), instances=InstanceBounds(1, 2))
    moment = snapshot(job_snapshot, offers=(SMALL,))
    settled = worth(moment, 0.10 / 3600, 1e6)
    begun = replace(job_snapshot, trained=Allocation("local-small", 1, 1))
    one_boots = worth(replace(moment, jobs=(begun,)), 0.10 / 3600, 1e6)
    paid, waited = (2 * 6 + 3) * 0.20, (2 * 6 + 3) * 0.10
    lost = (paid + waited) / 6 / 3600
    assert one_boots.nothing == pytest.approx(-lost)
    assert one_boots.surplus[1] == settled.surplus[1]
    assert one_boots.surplus[0] == pytest.approx(settled.surplus[0] - lost / 2)


def test_what_is_dearer_and_no_faster_is_worth_less_though_the_old_works_on_meanwhile() -> None:
    """Finish nine tenths of the work before the dearer instance has booted."""
    dear = replace(SMALL, id="dear", usd_per_hour=5 * SMALL.usd_per_hour, boot_seconds=81.0)
    job_snapshot = job(held=Allocation(SMALL.id, 1, 1), instances=InstanceBounds(1, 1))
    money = Limit("money", LimitUnit.USD_PER_HOUR, 10.0)
    moment = snapshot(job_snapshot, offers=(SMALL, dear), limits=[money])
    candidates = ground_of(job_snapshot, moment).candidates
    here, there = (candidates.index(Allocation(sold.id, 1, 1)) for sold in (SMALL, dear))
    for limit_price in (0.0, 0.5, 2.0):
        prices = np.array([limit_price / 3600])
        worths = worth(moment, 0.10 / 3600, 9000.0, prices)
        assert worths.surplus[there] < worths.surplus[here]
