from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.plan import Action, Decision
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.policies.published.pollux import PolluxParameters, PolluxPolicy
from tests.conformance.policy import PolicyConformance
from tests.economics.cases import NOW, SMALL, job, model, offer, snapshot

# 64 examples on one device take 0.64 s; synchronising several 0.02 s and as much a doubling. So of
# 1, 2, 4, 8, 16 devices 1, 0.94, 0.80, 0.57, 0.33 are of use.
BOUNDS = InstanceBounds(1, 16)


class TestPolluxOnACloud(PolicyConformance):
    # A new division can leave the band: one moment in some thousands takes a second step.
    plans_until_settled = 4

    @pytest.fixture
    def policy(self) -> PolluxPolicy:
        return PolluxPolicy()


def elastic(name: str = "resnet", held: int = 0, **changes: object) -> JobSnapshot:
    has = Allocation("local-small", held, 1) if held else None
    plain = job(name, has, instances=BOUNDS, submitted_seconds=NOW - 3600.0)
    return replace(plain, **changes)  # type: ignore[arg-type]


def plan(*jobs: JobSnapshot, **parameters: float) -> list[Decision]:
    policy = PolluxPolicy(PolluxParameters(**parameters))  # type: ignore[arg-type]
    return list(policy.plan(snapshot(*jobs, offers=[SMALL])).decisions)


def instances(*jobs: JobSnapshot, **parameters: float) -> list[int]:
    decisions = plan(*jobs, **parameters)
    return [each.target.instances if each.target else 0 for each in decisions]


def test_a_cluster_grows_to_the_middle_of_the_band() -> None:
    (decision,) = plan(elastic(held=2))
    assert decision.action is Action.GROW
    assert decision.target == Allocation("local-small", 11, 1)
    assert "cluster utility 45 %, aim 35 % to 65 %" in decision.reason


def test_within_the_band_it_stays_as_it_is() -> None:
    for held in (7, 8, 10, 13):
        assert instances(elastic(held=held)) == [held]


def test_a_job_measured_on_few_devices_is_taken_to_twice_as_many() -> None:
    for measured, most in (((), 1), (((1, 1),), 2), (((1, 1), (2, 2)), 4)):
        assert instances(elastic(models={"core": model(measured=measured)})) == [most]


def test_a_wide_cluster_shrinks() -> None:
    assert instances(elastic(held=16)) == [11]


def test_a_newcomer_has_its_share_of_a_cluster_that_is_large_enough() -> None:
    """Nine devices with two jobs on them: each about as fast as on its half."""
    shares = instances(elastic("a", held=9), elastic("b"), low_utility=0.3, high_utility=0.9)
    assert sum(shares) == 9
    assert max(shares) - min(shares) == 1


def test_what_is_held_is_not_shared_out_anew_for_less_than_the_restarts() -> None:
    """A job of 40 s has lost more than it can have gained."""
    uneven = (elastic("a", held=5), elastic("b", held=3))
    wide = {"low_utility": 0.3, "high_utility": 0.9}
    assert instances(*uneven, **wide) == [4, 4]
    young = [replace(one, submitted_seconds=NOW - 40.0) for one in uneven]
    assert instances(*young, **wide) == [5, 3]


def test_the_cheapest_device_that_a_job_may_use() -> None:
    dear = offer("dear", "0.30", devices=2)
    cheap = offer("cheap", "0.16", devices=2)
    moment = snapshot(elastic(), offers=[dear, cheap])
    (decision,) = PolluxPolicy().plan(moment).decisions
    assert decision.target is not None
    assert decision.target.offer == "cheap"
    (decision,) = PolluxPolicy().plan(replace(moment, unavailable=frozenset({"cheap"}))).decisions
    assert decision.target is not None
    assert decision.target.offer == "dear"


def test_a_band_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"low_utility=0\.9"):
        PolluxParameters(low_utility=0.9)
