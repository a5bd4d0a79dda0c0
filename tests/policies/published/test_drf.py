from __future__ import annotations

import pytest

from autoscaler.policies.published.drf import DrfParameters, DrfPolicy
from tests.conformance.pool_policy import (
    PoolPolicyConformance,
    machines,
    pool_job,
    pool_snapshot,
    sizes,
)


class TestDrf(PoolPolicyConformance):
    is_rigid = False

    @pytest.fixture
    def policy(self) -> DrfPolicy:
        return DrfPolicy()


def test_all_have_equal_shares_but_no_more_than_they_asked_for() -> None:
    jobs = (pool_job("a", 1), pool_job("b", 8), pool_job("c", 8))
    plan = DrfPolicy().plan(pool_snapshot(*jobs))
    assert sizes(plan) == {"a": 1, "b": 4, "c": 3}
    assert "50 % of these devices; 8 asked for" in plan.decisions[1].reason


def test_a_heavier_job_has_a_larger_share_unless_weights_do_not_count() -> None:
    jobs = (pool_job("a", 8, weight=3.0), pool_job("b", 8))
    moment = pool_snapshot(*jobs)
    assert sizes(DrfPolicy().plan(moment)) == {"a": 6, "b": 2}
    assert sizes(DrfPolicy(DrfParameters(weighted=False)).plan(moment)) == {"a": 4, "b": 4}


def test_where_there_are_more_jobs_than_devices_the_first_have_one() -> None:
    jobs = [pool_job(f"job-{turn}", 2, submitted_seconds=float(turn)) for turn in range(5)]
    plan = DrfPolicy().plan(pool_snapshot(*jobs, offers=machines(1)))
    assert list(sizes(plan).values()) == [1, 1, 1, 1, 0]
