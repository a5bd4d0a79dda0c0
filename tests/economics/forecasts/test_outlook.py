from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.lives import HazardByAge, LifetimeEstimate
from autoscaler.domain.objective import AfterDeadline, Objective
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.forecasts.outlook import JobOutlook, NoOutlook, outlook
from tests.economics import naive
from tests.economics.cases import NOW, SMALL, job, model, offer, snapshot, valued

ONE, TWO = Allocation("local-small", 1, 1), Allocation("local-small", 2, 1)


def foreseen(state: JobSnapshot, moment: Snapshot | None = None) -> JobOutlook:
    found = outlook(state, moment or snapshot(state))
    assert isinstance(found, JobOutlook), found
    return found


def test_a_job_that_stays_takes_its_work_at_its_speed() -> None:
    state = job(held=ONE, instances=InstanceBounds(1, 1, offers=("local-small",)))
    moment = snapshot(state)
    found = foreseen(state)
    seconds = 9000.0 / naive.goodput(state, moment, ONE)
    assert found.seconds.median == pytest.approx(seconds)
    assert found.usd.high == pytest.approx(seconds * naive.price(state, moment, ONE))
    assert [(size.from_seconds, size.allocation) for size in found.sizes] == [(0.0, ONE)]
    assert found.sizes[0].usd_per_hour == pytest.approx(0.10)
    assert found.chance is None and found.note is None and found.is_measured


def test_a_job_that_grows_trains_while_the_others_boot() -> None:
    bounds = InstanceBounds(1, 2, offers=("local-small",))
    state = job(held=ONE, instances=bounds, objective=valued(5.0), remaining_examples=1e5)
    moment = snapshot(state)
    found = foreseen(state)
    assert [(size.from_seconds, size.allocation) for size in found.sizes] == [
        *((0.0, ONE), (6.0, TWO)),
    ]
    slow, fast = (naive.goodput(state, moment, size) for size in (ONE, TWO))
    seconds = 6.0 + 0.05 + (1e5 - 6.0 * slow) / fast
    assert found.seconds.median == pytest.approx(seconds)
    usd = 0.1 / 3600 * (6.0 + 6.0 + 2 * (seconds - 6.0))
    assert found.usd.median == pytest.approx(usd)


def test_a_higher_value_of_time_buys_an_earlier_finish() -> None:
    state = job(held=ONE, instances=InstanceBounds(1, 8), remaining_examples=1e6)
    founds = [foreseen(replace(state, objective=valued(value))) for value in (0.01, 1.0, 50.0)]
    seconds = [found.seconds.median for found in founds]
    usd = [found.usd.median for found in founds]
    assert seconds == sorted(seconds, reverse=True) and seconds[0] > seconds[-1]
    assert usd == sorted(usd) and usd[0] < usd[-1]


def test_an_earlier_deadline_costs_more_and_is_kept() -> None:
    state = job(held=ONE, instances=InstanceBounds(1, 8), remaining_examples=1e6)
    alone = 1e6 / naive.goodput(state, snapshot(state), ONE)
    usd = []
    for share in (0.9, 0.5, 0.3):
        ends = Objective(deadline_seconds=NOW + share * alone)
        found = foreseen(replace(state, objective=ends))
        assert 0.5 * share * alone < found.seconds.high <= share * alone
        assert found.chance == 1.0 and found.note is None
        usd.append(found.usd.median)
    assert usd == sorted(usd)


def test_a_deadline_out_of_reach_has_no_chance() -> None:
    state = job(held=ONE, objective=Objective(deadline_seconds=NOW + 5.0))
    found = foreseen(state)
    assert found.chance == 0.0 and "deadline out of reach" in (found.note or "")


def test_both_stages_of_a_budget_are_shown() -> None:
    state = job(held=ONE, instances=InstanceBounds(1, 4), remaining_examples=1e6)
    dear = foreseen(replace(state, objective=valued(50.0))).usd.median
    cheap = foreseen(replace(state, objective=valued(0.001))).usd.median
    ends = Objective(budget_usd=Decimal(str((dear + cheap) / 2 + state.spent_usd)))
    found = foreseen(replace(state, objective=ends))
    assert cheap <= found.usd.median <= dear and found.chance == 1.0
    assert len({size.allocation for size in found.sizes}) > 1


def test_a_first_start_counts_its_boot_and_bounds_what_is_not_measured() -> None:
    unsure = job(models=model(draws=32, spread=0.3, measured=()), instances=InstanceBounds(1, 1))
    found = foreseen(unsure)
    assert not found.is_measured
    assert found.seconds.low < 0.9 * found.seconds.median < found.seconds.high
    assert [size.allocation is None for size in found.sizes] == [True, False]
    assert found.sizes[1].from_seconds == 6.0


def test_a_boot_under_way_is_waited_for() -> None:
    bounds = InstanceBounds(1, 1, offers=("local-small",))
    trains = job(held=ONE, instances=bounds)
    boots = replace(trains, trained=None, ordered_seconds=NOW - 2.0)
    later = foreseen(boots).seconds.median - foreseen(trains).seconds.median
    assert later == pytest.approx(4.0)


def test_reclaims_widen_the_band_of_a_job_on_spot() -> None:
    spot = offer("spot", "0.03", reclaims_per_hour=20.0)
    hazard = HazardByAge((0.0,), (20.0 / 3600,), (4.0,))
    gap = HazardByAge((0.0,), (1.0 / 60,), (4.0,))
    lives = {"spot": LifetimeEstimate(hazard, gap)}
    state = job(
        held=Allocation("spot", 1, 1),
        instances=InstanceBounds(1, 1, offers=("spot", "local-small")),
        remaining_examples=1e6,
    )
    moment = snapshot(state, offers=(SMALL, spot), lives=lives)
    found = foreseen(state, moment)
    assert found.sizes[0].allocation == Allocation("spot", 1, 1)
    assert found.seconds.low < found.seconds.median < found.seconds.high


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (job(remaining_examples=None), "how much work"),
        (job(models={}), "no throughput model"),
        (job(instances=InstanceBounds(offers=("gone",))), "no offer"),
        (
            job(
                held=ONE,
                objective=Objective(deadline_seconds=NOW - 1.0, after_deadline=AfterDeadline.STOP),
            ),
            "the job stops: deadline missed",
        ),
    ],
)
def test_the_reason_for_no_outlook_is_told(state: JobSnapshot, reason: str) -> None:
    found = outlook(state, snapshot(state))
    assert isinstance(found, NoOutlook) and reason in found.reason
