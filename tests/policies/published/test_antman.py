from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.policies.published.antman import AntmanParameters, AntmanPolicy
from tests.conformance.policy import PolicyConformance
from tests.conformance.pool_policy import (
    PoolPolicyConformance,
    placement_of,
    pool_job,
    pool_snapshot,
    sizes,
)
from tests.economics.cases import SMALL, job, offer, snapshot

SPOT = offer("spot", "0.03", reclaims_per_hour=0.5)


class TestAntmanOnAPool(PoolPolicyConformance):
    is_rigid = False

    @pytest.fixture
    def policy(self) -> AntmanPolicy:
        return AntmanPolicy()


class TestAntmanOnACloud(PolicyConformance):
    @pytest.fixture
    def policy(self) -> AntmanPolicy:
        return AntmanPolicy()


def test_an_opportunist_makes_way_for_a_guaranteed_job() -> None:
    there = placement_of(node_000=4, node_001=4)
    filler = pool_job("filler", 8, weight=0.5, placement=there)
    assert sizes(AntmanPolicy().plan(pool_snapshot(filler))) == {"filler": 8}
    plan = AntmanPolicy().plan(pool_snapshot(filler, pool_job("sure", 6)))
    assert sizes(plan) == {"filler": 2, "sure": 6}
    assert [decision.reason for decision in plan.decisions] == [
        "shrink filler from 4 on node-000, 4 on node-001 to 2 on node-001: opportunistic: "
        "devices that guaranteed jobs leave",
        "start sure with 4 on node-000, 2 on node-001: guaranteed",
    ]


def test_a_guaranteed_job_is_not_interrupted_and_the_next_uses_what_is_left() -> None:
    first = pool_job("first", 6, placement=placement_of(node_000=4, node_001=2))
    early = pool_job("early", 8, submitted_seconds=0.0)
    plan = AntmanPolicy().plan(pool_snapshot(first, early))
    assert sizes(plan) == {"early": 2, "first": 6}
    assert (
        "guaranteed, but opportunistic until all its devices are free" in plan.decisions[0].reason
    )


def test_opportunists_share_evenly() -> None:
    jobs = [pool_job(name, 6, weight=0.1) for name in ("a", "b", "c")]
    assert sizes(AntmanPolicy().plan(pool_snapshot(*jobs))) == {"a": 3, "b": 3, "c": 2}


def test_on_a_cloud_guaranteed_jobs_buy_on_demand_and_opportunists_spot() -> None:
    bounds = InstanceBounds(1, 8)
    sure = replace(job("sure", instances=bounds), requested_devices=3)
    maybe = replace(job("maybe", instances=bounds), requested_devices=2, weight=0.5)
    plan = AntmanPolicy().plan(snapshot(sure, maybe, offers=[SMALL, SPOT]))
    assert {each.job: each.target for each in plan.decisions} == {
        "maybe": Allocation("spot", 2, 1),
        "sure": Allocation("local-small", 3, 1),
    }


def test_a_weight_below_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="guaranteed_weight=-1"):
        AntmanParameters(guaranteed_weight=-1)
