"""Weights decide where limits bind, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import Snapshot
from autoscaler.policies.base import Policy
from autoscaler.policies.marginal.policy import MarginalPolicy
from autoscaler.policies.published.drf import DrfPolicy
from tests.conformance.pool_policy import machines, pool_job, pool_snapshot, sizes
from tests.economics.cases import SMALL, devices, job, snapshot
from tests.economics.strategies import snapshots

ONE = Allocation("local-small", 1, 1)
weight = st.sampled_from([0.25, 1.0, 4.0])


def weighted(moment: Snapshot, *weights: float) -> Snapshot:
    jobs = zip(moment.jobs, weights, strict=False)
    return replace(moment, jobs=tuple(replace(one, weight=own) for one, own in jobs))


def devices_of(plan: Plan, place: int) -> int:
    target = plan.decisions[place].target
    return 0 if target is None else target.devices


def targets(plan: Plan) -> list[Allocation | None]:
    return [decision.target for decision in plan.decisions]


@given(snapshots(jobs=3, is_limited=True), st.lists(weight, min_size=3, max_size=3))
@settings(max_examples=15)
def test_as_many_times_as_much_for_all_changes_nothing(
    moment: Snapshot, weights: list[float]
) -> None:
    once = MarginalPolicy().plan(weighted(moment, *weights))
    twice = MarginalPolicy().plan(weighted(moment, *(2.0 * each for each in weights)))
    assert targets(twice) == targets(once)
    doubled = {name: 2.0 * price for name, price in once.shadow_prices.items()}
    assert twice.shadow_prices == pytest.approx(doubled, rel=1e-6, abs=1e-12)


@given(snapshots(jobs=3), st.lists(weight, min_size=3, max_size=3))
@settings(max_examples=15)
def test_where_no_limit_binds_weights_change_nothing(
    moment: Snapshot, weights: list[float]
) -> None:
    plain = MarginalPolicy().plan(moment)
    assert targets(MarginalPolicy().plan(weighted(moment, *weights))) == targets(plain)


@given(
    st.lists(weight, min_size=3, max_size=3),
    st.integers(3, 9),
    st.lists(st.sampled_from([1e5, 3e5, 1e6]), min_size=3, max_size=3),
)
@settings(max_examples=25)
def test_a_higher_priority_never_gets_less(
    weights: list[float], count: int, works: list[float]
) -> None:
    jobs = [job(f"job-{i}", ONE, remaining_examples=work) for i, work in enumerate(works)]
    moment = snapshot(*jobs, offers=(SMALL,), limits=[devices(count)])
    before = MarginalPolicy().plan(weighted(moment, *weights))
    after = MarginalPolicy().plan(weighted(moment, 4.0 * weights[0], *weights[1:]))
    assert devices_of(after, 0) >= devices_of(before, 0)


@pytest.mark.parametrize("policy", [MarginalPolicy(), DrfPolicy()])
def test_on_a_pool_too(policy: Policy) -> None:
    jobs = [pool_job(name, 8) for name in ("a", "b", "c")]
    for heavy in range(3):
        own = [4.0 if i == heavy else 1.0 for i in range(3)]
        moment = weighted(pool_snapshot(*jobs, offers=machines(2)), *own)
        found = sizes(policy.plan(moment))
        name = jobs[heavy].id
        assert found[name] > max(size for other, size in found.items() if other != name)


def test_a_reason_tells_the_weights_behind_the_bids() -> None:
    jobs = (job("heavy", ONE, weight=4.0), job("light", ONE))
    plan = MarginalPolicy().plan(snapshot(*jobs, offers=(SMALL,), limits=[devices(3)]))
    heavy, light = plan.decisions
    assert heavy.target is not None and heavy.target.instances == 2
    assert "at weight 4 to heavy" in light.reason and "a device is worth $" in light.reason
    assert heavy.figures["weight"] == 4.0
