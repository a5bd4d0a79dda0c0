from __future__ import annotations

import pytest

from autoscaler.domain.snapshot import JobSnapshot, ServiceReceived
from autoscaler.policies.published.gandiva_fair import GandivaFairParameters, GandivaFairPolicy
from tests.conformance.pool_policy import (
    PoolPolicyConformance,
    machines,
    pool_job,
    pool_snapshot,
    sizes,
)
from tests.economics.cases import NOW


class TestGangAware(PoolPolicyConformance):
    @pytest.fixture
    def policy(self) -> GandivaFairPolicy:
        return GandivaFairPolicy()


class TestByTime(PoolPolicyConformance):
    @pytest.fixture
    def policy(self) -> GandivaFairPolicy:
        return GandivaFairPolicy(GandivaFairParameters(is_gang_aware=False))


def aged(name: str, requested: int, ran: float, **changes: object) -> JobSnapshot:
    """Return a job that arrived 1000 s ago and had its devices for part of that time."""
    service = ServiceReceived(ran * requested, started_seconds=NOW - 1000)
    return pool_job(name, requested, service=service, submitted_seconds=NOW - 1000, **changes)


def test_a_gang_pays_for_every_device() -> None:
    wide, narrow = aged("wide", 4, ran=250.0), aged("narrow", 1, ran=400.0)
    moment = pool_snapshot(wide, narrow, offers=machines(1))
    assert sizes(GandivaFairPolicy().plan(moment)) == {"narrow": 1, "wide": 0}
    by_time = GandivaFairPolicy(GandivaFairParameters(is_gang_aware=False))
    assert sizes(by_time.plan(moment)) == {"narrow": 0, "wide": 4}


def test_twice_the_tickets_are_worth_twice_the_devices() -> None:
    for weight, winner in ((1.9, "b"), (2.1, "a")):
        moment = pool_snapshot(
            aged("a", 4, ran=400.0, weight=weight), aged("b", 4, ran=200.0), offers=machines(1)
        )
        assert sizes(GandivaFairPolicy().plan(moment))[winner] == 4


def test_a_newcomer_has_no_more_to_make_up_for_than_its_own_life() -> None:
    new = pool_job(
        "new",
        4,
        service=ServiceReceived(4 * 60.0, started_seconds=NOW - 100),
        submitted_seconds=NOW - 100,
    )
    plan = GandivaFairPolicy().plan(pool_snapshot(aged("old", 4, 500.0), new, offers=machines(1)))
    assert sizes(plan) == {"new": 0, "old": 4}
    assert [decision.reason for decision in plan.decisions] == [
        "wait new: 2.4 devices per ticket on average so far; 4 of 4 devices go to jobs with less",
        "start old with 4 on node-000: 2 devices per ticket on average so far",
    ]
