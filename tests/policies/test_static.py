from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.policies.static import StaticParameters, StaticPolicy
from tests.conformance.policy import PolicyConformance
from tests.economics.cases import NOW, devices, job, snapshot

TWO = Allocation("local-small", 2, 1)


class TestStatic(PolicyConformance):
    @pytest.fixture
    def policy(self) -> StaticPolicy:
        return StaticPolicy(StaticParameters(instances=2))


def test_it_holds_what_was_chosen() -> None:
    policy = StaticPolicy(StaticParameters(instances=3, offer="local-large"))
    (decision,) = policy.plan(snapshot(job())).decisions
    assert decision.target == Allocation("local-large", 3, 2)
    assert decision.reason == "start resnet: 3 x local-large, as chosen by a person"
    assert StaticPolicy().plan(snapshot(job())).decisions[0].target == replace(TWO, instances=1)


def test_bounds_come_nearest() -> None:
    policy = StaticPolicy(StaticParameters(instances=3))
    small = job(instances=InstanceBounds(1, 2))
    assert policy.plan(snapshot(small)).decisions[0].target == TWO
    other = job(instances=InstanceBounds(1, 2, offers=("none",)))
    assert policy.plan(snapshot(other)).decisions[0].target is None


def test_what_is_held_is_kept_and_the_rest_comes_in_the_order_of_submission() -> None:
    policy = StaticPolicy(StaticParameters(instances=2))
    jobs = (
        job("late", submitted_seconds=NOW - 1),
        job("early", submitted_seconds=NOW - 2),
        job("there", TWO, submitted_seconds=NOW),
    )
    plan = policy.plan(snapshot(*jobs, limits=[devices(4)]))
    assert [decision.target for decision in plan.decisions] == [TWO, None, TWO]
