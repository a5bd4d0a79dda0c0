from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Limit, LimitUnit, Purchase
from autoscaler.simulator.studies.forecast import best_pool, pools
from autoscaler.simulator.studies.searches import AsynchronousHalving
from autoscaler.simulator.studies.static_pools import StaticPool, run_on_pool
from tests.simulator.study_files import OFFER, SYNCHRONOUS, study

TO_THE_END = AsynchronousHalving(9, 6.0, 2)
FIRST = replace(OFFER, boot_seconds=100.0, minimum_billed_seconds=0)


def test_one_instance_takes_all_trials_one_after_the_other() -> None:
    run = run_on_pool(study(TO_THE_END, Objective()), StaticPool(FIRST, 1), seed=0)
    work_seconds = sum(6 * (60.0 + 10.0 * number) for number in range(9))
    assert run.seconds == pytest.approx(100 + 5 + work_seconds)  # boot, start
    assert run.usd == pytest.approx(run.seconds * FIRST.usd_per_second)


def test_trials_wait_for_each_other_and_all_instances_are_paid_meanwhile() -> None:
    run = run_on_pool(study(SYNCHRONOUS, Objective()), StaticPool(FIRST, 9, times=2.0), seed=0)
    values = [10.0 - (number * 7 % 9) for number in range(9)]
    second = sorted(range(9), key=lambda number: values[number])[:3]
    third = second[0]
    rungs = (140.0, 2 * max(60.0 + 10 * number for number in second), 3 * (60.0 + 10 * third))
    assert run.seconds == pytest.approx(105 + sum(rungs) / 2)
    assert run.usd == pytest.approx(9 * run.seconds * FIRST.usd_per_second, rel=1e-3)


def test_reclaims_and_a_least_bill_make_a_pool_dearer() -> None:
    simulated = study(TO_THE_END, Objective())
    spot = replace(FIRST, purchase=Purchase.SPOT, reclaims_per_hour=5.0)
    calm, taken = (run_on_pool(simulated, StaticPool(offer, 3), 1) for offer in (FIRST, spot))
    assert taken.seconds > calm.seconds
    billed = replace(FIRST, minimum_billed_seconds=86400)
    assert run_on_pool(simulated, StaticPool(billed, 3), 1).usd == pytest.approx(
        3 * 86400 * FIRST.usd_per_second
    )


def test_the_best_pool_is_the_cheapest_in_time_else_the_quickest() -> None:
    every = [StaticPool(FIRST, size) for size in (1, 3, 9)]

    def best(seconds: float) -> int:
        draws = [study(TO_THE_END, Objective(deadline_seconds=seconds))]
        best_found = best_pool(draws, every, 1.0)
        assert best_found is not None
        return best_found.size

    assert [best(seconds) for seconds in (20_000.0, 3000.0, 10.0)] == [1, 3, 9]


def test_pools_are_of_what_trials_may_have_and_within_limits() -> None:
    dearer = replace(FIRST, id="dearer", usd_per_hour=FIRST.usd_per_hour * 2)
    spot = replace(FIRST, id="spot", purchase=Purchase.SPOT)
    limit = Limit("quota", LimitUnit.INSTANCES, 3)
    allowed_pools = pools([dearer, FIRST, spot], [limit], InstanceBounds(spot=False), 40)
    assert [(offer.id, size) for offer, size in allowed_pools] == [
        (FIRST.id, n) for n in (1, 2, 3)
    ]
