from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.policies.published.fifo import FifoParameters, FifoPolicy
from tests.conformance.pool_policy import (
    PoolPolicyConformance,
    after_plan,
    placement_of,
    pool_job,
    pool_snapshot,
    sizes,
)
from tests.economics.cases import NOW

BACKFILLING = FifoPolicy(FifoParameters(backfill=True))


class TestInTurn(PoolPolicyConformance):
    @pytest.fixture
    def policy(self) -> FifoPolicy:
        return FifoPolicy()


class TestBackfilling(PoolPolicyConformance):
    @pytest.fixture
    def policy(self) -> FifoPolicy:
        return BACKFILLING


def test_nobody_passes_the_first_who_waits_but_by_backfilling() -> None:
    jobs = (
        pool_job("a", 6, submitted_seconds=NOW - 3),
        pool_job("b", 4, submitted_seconds=NOW - 2),
        pool_job("c", 2, submitted_seconds=NOW - 1),
    )
    moment = pool_snapshot(*jobs)
    assert sizes(FifoPolicy().plan(moment)) == {"a": 6, "b": 0, "c": 0}
    plan = BACKFILLING.plan(moment)
    assert sizes(plan) == {"a": 6, "b": 0, "c": 2}
    assert [decision.reason for decision in plan.decisions] == [
        "start a with 4 on node-000, 2 on node-001: first come, first served",
        "wait b: 4 of 8 devices go to earlier jobs",
        "start c with 2 on node-001: first come, first served",
    ]


def test_nobody_is_interrupted_by_an_earlier_job() -> None:
    late = pool_job("late", 8, placement=placement_of(node_000=4, node_001=4))
    early = pool_job("early", 1, submitted_seconds=NOW - 1e6)
    moment = pool_snapshot(late, early)
    assert sizes(BACKFILLING.plan(moment)) == {"late": 8, "early": 0}
    ended = replace(moment, jobs=(early,))
    assert sizes(FifoPolicy().plan(after_plan(ended, FifoPolicy().plan(ended)))) == {"early": 1}
