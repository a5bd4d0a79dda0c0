from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.policies.published.ref import RefParameters, RefPolicy, endowments, whole_shares
from tests.conformance.pool_policy import (
    PoolPolicyConformance,
    machine,
    pool_job,
    pool_snapshot,
    sizes,
)
from tests.economics.cases import THETA, model

KINDS = ("fast", "slow", "steady")
alphas = st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3)


class TestRef(PoolPolicyConformance):
    is_rigid = False

    @pytest.fixture
    def policy(self) -> RefPolicy:
        return RefPolicy()


def utility(amounts: dict[str, float], elasticities: dict[str, float]) -> float:
    return sum(alpha * math.log(amounts[kind]) for kind, alpha in elasticities.items())


@given(st.lists(alphas, min_size=1, max_size=6))
def test_nobody_would_rather_have_an_equal_part_or_what_another_has(
    drawn: list[list[float]],
) -> None:
    capacity = dict(zip(KINDS, (4.0, 8.0, 16.0), strict=True))
    agents = {
        f"agent-{turn}": dict(zip(KINDS, (a / sum(own) for a in own), strict=True))
        for turn, own in enumerate(drawn)
    }
    found = endowments(agents, capacity)
    equal = {kind: amount / len(agents) for kind, amount in capacity.items()}
    for kind, amount in capacity.items():
        assert sum(own[kind] for own in found.values()) == pytest.approx(amount)
    for agent, own in agents.items():
        assert utility(found[agent], own) >= utility(equal, own) - 1e-9
        for other in found.values():
            assert utility(found[agent], own) >= utility(other, own) - 1e-9


def test_on_one_kind_all_have_equal_shares() -> None:
    jobs = [pool_job(name) for name in ("a", "b", "c")]
    assert sizes(RefPolicy().plan(pool_snapshot(*jobs))) == {"a": 3, "b": 3, "c": 2}


def test_a_job_takes_the_kind_that_it_is_better_on_than_others_are() -> None:
    slower = {"fast": model(THETA, "fast"), "slow": model(kind="slow")}
    quick = model(kind="fast"), model(kind="slow")
    offers = [machine(0, kind="fast"), machine(1, kind="slow")]
    narrow = pool_job("narrow", models={"fast": slower["fast"]})
    either = pool_job("either", models={each.device_kind: each for each in quick})
    plan = RefPolicy().plan(pool_snapshot(narrow, either, offers=offers))
    places = {one.job: one.placement for one in plan.decisions}
    assert str(places["narrow"]) == "4 on node-000"
    assert str(places["either"]) == "4 on node-001"


def test_whole_shares_add_up() -> None:
    assert whole_shares([1.0, 1.0, 2.0], 9) == [2, 2, 5]
    assert whole_shares([1.0, 1.0, 1.0], 2) == [1, 1, 0]


def test_an_elasticity_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="least_elasticity=0"):
        RefParameters(least_elasticity=0.0)
