from __future__ import annotations

import pytest

from autoscaler.domain.snapshot import JobSnapshot, ServiceReceived
from autoscaler.policies.published.tiresias import TiresiasParameters, TiresiasPolicy
from tests.conformance.pool_policy import (
    PoolPolicyConformance,
    placement_of,
    pool_job,
    pool_snapshot,
    sizes,
)
from tests.economics.cases import NOW

HOUR = 3600.0


class TestTiresias(PoolPolicyConformance):
    @pytest.fixture
    def policy(self) -> TiresiasPolicy:
        return TiresiasPolicy()


class TestManyQueuesWithPromotion(PoolPolicyConformance):
    @pytest.fixture
    def policy(self) -> TiresiasPolicy:
        return TiresiasPolicy(TiresiasParameters((3250.0, 7200.0, 18_000.0), promotion=2.0))


def aged(
    name: str, requested: int, attained_hours: float, started_hours: float, **changes: object
) -> JobSnapshot:
    """Attained device-hours since a start so many hours ago."""
    started = NOW - started_hours * HOUR
    service = ServiceReceived(attained_hours * HOUR, started_seconds=started)
    return pool_job(name, requested, service=service, submitted_seconds=started, **changes)


def test_a_job_that_had_16_device_hours_makes_way_for_one_that_had_less() -> None:
    new = pool_job("new", 4)
    old = {"requested": 8, "started_hours": 2, "placement": placement_of(node_000=4, node_001=4)}
    before = pool_snapshot(new, aged("old", attained_hours=15.99, **old))
    assert sizes(TiresiasPolicy().plan(before)) == {"new": 0, "old": 8}
    plan = TiresiasPolicy().plan(pool_snapshot(new, aged("old", attained_hours=16.0, **old)))
    assert sizes(plan) == {"new": 4, "old": 0}
    assert [decision.reason for decision in plan.decisions] == [
        "start new with 4 on node-000: queue 1, 0 device-hours attained",
        "wait old without 4 on node-000, 4 on node-001: queue 2, 16 device-hours attained; "
        "8 of 8 devices go to jobs before it",
    ]


def test_whoever_fits_in_what_is_left_runs() -> None:
    jobs = (
        pool_job("a", 5, submitted_seconds=NOW - 3),
        pool_job("b", 4, submitted_seconds=NOW - 2),
        pool_job("c", 2, submitted_seconds=NOW - 1),
        aged("d", 1, 20.0, 30.0),
    )
    assert sizes(TiresiasPolicy().plan(pool_snapshot(*jobs))) == {"a": 5, "b": 0, "c": 2, "d": 1}


def test_a_later_queue_is_in_the_order_in_which_jobs_can_have_come_there() -> None:
    """One of 8 devices has 16 device-hours 2 h after its start, one of 2 devices after 8 h."""
    wide = aged("wide", 8, 17.0, started_hours=9.0)
    narrow = aged("narrow", 2, 17.0, started_hours=14.0)
    assert sizes(TiresiasPolicy().plan(pool_snapshot(wide, narrow))) == {"narrow": 0, "wide": 8}


def test_a_job_that_has_waited_long_enough_is_promoted() -> None:
    """Promote a job that has run for 2 h, waited for 6 h and arrived first."""
    starved = aged("starved", 8, 16.0, started_hours=8.0)
    new = pool_job("new", 8)
    moment = pool_snapshot(starved, new)
    for promotion, winner in ((0.0, "new"), (2.9, "starved"), (3.0, "starved"), (3.1, "new")):
        policy = TiresiasPolicy(TiresiasParameters(promotion=promotion))
        assert sizes(policy.plan(moment))[winner] == 8


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"thresholds_device_seconds": (2.0, 1.0)}, "thresholds_device_seconds.*ascend"),
        ({"thresholds_device_seconds": (0.0,)}, "thresholds_device_seconds.*ascend"),
        ({"promotion": -1.0}, "promotion=-1.0"),
    ],
)
def test_parameters_that_make_no_queues_are_refused(
    values: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        TiresiasParameters(**values)  # type: ignore[arg-type]
