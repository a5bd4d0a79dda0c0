from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import BatchBounds, NoiseScale
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.plan import Action
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.policies.published.throughput import GrowthParameters, ThroughputPolicy
from tests.conformance.policy import PolicyConformance
from tests.economics.cases import LARGE, NOW, SMALL, THETA, devices, job, model, snapshot

WIDE = BatchBounds(initial=64, maximum=4096, device_maximum=64, adaptive=True)
# Synchronising takes 1 s whatever the size, a full device's examples 0.64 s: 64 / 1.64 = 39 more
# examples a second from each instance after the first, which has 100.
FLAT = replace(THETA, alpha_across_seconds=1.0, beta_across_seconds_per_doubling=0.0)


class TestThroughput(PolicyConformance):
    @pytest.fixture
    def policy(self) -> ThroughputPolicy:
        return ThroughputPolicy()


def elastic(name: str = "resnet", **changes: object) -> JobSnapshot:
    plain = job(name, models=model(FLAT), batch=WIDE, instances=InstanceBounds(1, 8))
    return replace(plain, **changes)  # type: ignore[arg-type]


def target(one: JobSnapshot, **parameters: float) -> Allocation | None:
    policy = ThroughputPolicy(GrowthParameters(**parameters))  # type: ignore[arg-type]
    (decision,) = policy.plan(snapshot(one, offers=[SMALL])).decisions
    return decision.target


def test_it_grows_while_a_dollar_more_buys_enough_of_what_one_has_bought() -> None:
    """Stop at a drop from 100 to 78 examples/s; from 2 instances on all is in proportion."""
    assert target(elastic()) == Allocation("local-small", 1, 1)
    mild = model(replace(FLAT, alpha_across_seconds=0.4))
    # R is 100, then 61.5 n: 123, 185, ... The second instance adds 0.23 of what the first gave.
    assert target(elastic(models={"core": mild}), least_share=0.22) == Allocation(
        "local-small", 8, 1
    )
    assert target(elastic(models={"core": mild}), least_share=0.24) == Allocation(
        "local-small", 1, 1
    )


def test_it_is_blind_to_what_a_larger_batch_is_worth() -> None:
    mild = {"core": model(replace(FLAT, alpha_across_seconds=0.4))}
    for noise_examples in (1.0, 1e6):
        noise = NoiseScale(64, 1.0, noise_examples / 64, 0.1)
        assert target(elastic(models=mild, noise=noise)) == Allocation("local-small", 8, 1)


def test_a_second_instance_is_tried_and_what_was_measured_at_most_doubled() -> None:
    for measured, instances in (((), 1), (((1, 1),), 2), (((1, 1), (3, 3)), 6)):
        found = model(replace(FLAT, alpha_across_seconds=0.4), measured=measured)
        given = target(elastic(models={"core": found}), least_share=0.2)
        assert given == Allocation("local-small", instances, 1)
    hopeless = model(replace(FLAT, alpha_across_seconds=60.0), measured=[(1, 1)])
    assert target(elastic(models={"core": hopeless})) == Allocation("local-small", 2, 1)


def test_it_buys_the_cheapest_a_device_and_keeps_to_it() -> None:
    """0.19 for two devices is less than twice 0.10."""
    offers = [SMALL, LARGE]
    (decision,) = ThroughputPolicy().plan(snapshot(elastic(), offers=offers)).decisions
    assert decision.target == Allocation("local-large", 1, 2)
    there = Allocation("local-small", 1, 1)
    (decision,) = (
        ThroughputPolicy()
        .plan(snapshot(elastic(held=there, trained=there), offers=offers))
        .decisions
    )
    assert (decision.action, decision.target) == (Action.HOLD, there)
    assert "100 examples/s" in decision.reason


def test_all_have_an_instance_before_one_has_more() -> None:
    mild = {"core": model(replace(FLAT, alpha_across_seconds=0.4))}
    early = elastic("early", models=mild, submitted_seconds=NOW - 9)
    late = elastic("late", models=mild)
    moment = snapshot(early, late, offers=[SMALL], limits=[devices(4)])
    counts = [d.target.instances for d in ThroughputPolicy().plan(moment).decisions if d.target]
    assert sorted(counts) == [1, 3]


@pytest.mark.parametrize("name", ["least_share", "growth"])
def test_parameters_below_zero_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=-1"):
        GrowthParameters(**{name: -1})  # type: ignore[arg-type]
