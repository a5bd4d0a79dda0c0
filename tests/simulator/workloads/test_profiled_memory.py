"""Predictions from a profile, compared with the simulator's training."""

from __future__ import annotations

import pytest

from autoscaler.domain.job import BatchSpec, InstanceBounds, JobSpec
from autoscaler.domain.offer import Offer
from autoscaler.service.jobs.plans import plan_ahead
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.workloads.profiled_memory import recollection
from autoscaler.wire.plan_messages import PlanView
from tests.simulator import toy
from tests.simulator.test_simulation import ARRIVALS, FAST, SLOW, Trial


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    return toy.profiles(tmp_path_factory.mktemp("profiles"))


def planned(profile: Profile, *offers: Offer, maximum: int) -> PlanView:
    spec = JobSpec(
        name=toy.APPLICATION,
        command=("train",),
        batch=BatchSpec(adaptive=True),
        instances=InstanceBounds(1, maximum),
    )
    memory = recollection(profile, toy.equipment(*offers).values(), spec.batch)
    return plan_ahead(spec, offers, (), memory, 0.0)


@pytest.mark.parametrize("offer", [SLOW, FAST])
def test_a_run_on_one_offer_ends_when_it_was_foretold(
    profiles: dict[str, Profile], offer: Offer
) -> None:
    profile = profiles[toy.APPLICATION]
    plan = planned(profile, offer, maximum=4)
    assert plan.chosen is not None and plan.chosen.measured
    result = Trial(profiles, offer, arrivals=ARRIVALS[:1]).run()
    held = {entry.instances for entry in result.jobs[0].timeline[-1:]}
    assert held == {plan.chosen.first.instances}
    assert plan.chosen.seconds == pytest.approx(result.jobs[0].completion_seconds, rel=0.25)


def test_a_plan_from_nothing_says_so(profiles: dict[str, Profile]) -> None:
    spec = JobSpec(name="new", command=("train",), total_examples=1e6)
    plan = plan_ahead(spec, (SLOW, FAST), (), None, 0.0)
    assert plan.known.endswith("nothing of it was measured yet, so the ranges are wide")
    assert plan.decision.startswith("start new on 1 x")
    assert plan.frontier[0].seconds_90 > 3 * plan.frontier[0].seconds


def test_the_owner_s_bounds_on_the_batch_hold(profiles: dict[str, Profile]) -> None:
    profile = profiles[toy.APPLICATION]
    bounds = recollection(
        profile, toy.equipment(SLOW).values(), BatchSpec(maximum=32, device_maximum=8)
    ).bounds
    assert (bounds.initial, bounds.maximum, bounds.device_maximum) == (16, 32, 8)
