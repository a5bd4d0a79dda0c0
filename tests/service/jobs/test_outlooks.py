from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.controller.controller import OfferEstimates
from autoscaler.domain.errors import Conflict, SpecError, UnknownJob
from autoscaler.domain.goodput import BatchBounds, NoiseScale
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.offer import Limit, LimitUnit
from autoscaler.domain.plan import Action
from autoscaler.domain.report import ReportOrigin, StepObservation
from autoscaler.domain.size_bars import BarKind
from autoscaler.wire.messages import Change
from autoscaler.wire.outlook_messages import Hypothesis
from tests.service.agents import SPEC, joined, training_report
from tests.service.conftest import Api

CHEAPEST = Objective(Preference.CHEAPEST)
BOUNDS = BatchBounds(32, 256, 32, True)


def trains(api: Api, reports: bool = True) -> None:
    """Let a job of four instances at most train on one, and report its step times."""
    held, _ = joined(api, replace(SPEC, instances=InstanceBounds(maximum=4)))
    api.world.tick(3)
    if not reports:
        return
    observations = (
        StepObservation("core", 1, 1, 32, 0, 0.1, 0.0, 50),
        StepObservation("core", 1, 1, 32, 1, 0.2, 0.0, 50),
        StepObservation("core", 2, 2, 32, 0, 0.12, 0.02, 50),
    )
    kind = api.world.controller.status.offers[0].device_kind
    report = training_report(
        bounds=BOUNDS,
        total_examples=32_000.0,
        noise=NoiseScale(32, 1.0, 2.0, 0.2),
        observations=tuple(replace(seen, device_kind=kind) for seen in observations),
    )
    now_seconds = api.world.clock.now()
    origin = ReportOrigin(held.id, 1, now_seconds)
    assert api.world.store.reports.add("job", report, origin, now_seconds)
    api.world.tick(10)


def test_the_curve_of_a_running_job_has_what_it_holds_and_what_was_measured(api: Api) -> None:
    trains(api)
    view = api.client.curve("job")
    assert view.missing is None and view.job == "job"
    assert view.held is not None and view.held.allocation.instances == 1
    assert view.offers[0].offer == view.held.allocation.offer
    assert [point.allocation.instances for point in view.offers[0].points] == [1, 2, 3, 4]
    for curve in view.offers:
        for point in curve.points:
            low, high = point.goodput_band
            assert low <= point.goodput * 1.01 and high >= point.goodput * 0.99
    assert view.held.equal_goodput == pytest.approx(view.held.goodput)
    one, two = view.measured
    assert (one.instances, one.devices, one.batch) == (1, 1, 32)
    assert one.goodput == pytest.approx(320.0)
    # 64 examples a step at a noise scale of 64: three quarters of them are useful.
    assert two.goodput == pytest.approx(64 / 0.12 * 0.75)
    assert view.noise_examples == pytest.approx(64.0)
    assert view.candidate is not None and view.decision is not None and not view.decided


def test_what_forbids_a_size_has_its_value_and_its_place(api: Api) -> None:
    trains(api)
    view = api.client.curve("job")
    points = [point for curve in view.offers for point in curve.points]
    for point in points:
        assert point.available == (not point.forbidden_by)
    bars = {bar.name: bar for point in points for bar in point.forbidden_by}
    maxima = {limit.name: limit.maximum for limit in api.world.controller.status.limits}
    assert bars and all(bar.kind is BarKind.LIMIT for bar in bars.values())
    for name, bar in bars.items():
        assert bar.maximum == maxima[name] and bar.room is not None and bar.room <= maxima[name]
    assert view.one_more_forbidden_by is None


def test_one_more_than_the_most_instances_is_forbidden_by_the_bound(api: Api) -> None:
    trains(api)
    api.world.store.jobs.change_spec("job", instances=InstanceBounds(maximum=1))
    bar = api.client.curve("job").one_more_forbidden_by
    assert bar is not None and (bar.kind, bar.maximum) == (BarKind.MAXIMUM, 1)


def test_a_budget_that_does_not_pay_a_start_forbids_the_size(api: Api) -> None:
    trains(api)
    spent = api.client.job("job").spent_usd
    objective = Objective(budget_usd=spent + Decimal("0.0040"))
    api.world.store.jobs.change_spec("job", objective=objective)
    points = [point for curve in api.client.curve("job").offers for point in curve.points]
    kinds = {bar.kind for point in points for bar in point.forbidden_by}
    assert BarKind.BUDGET in kinds
    assert points[0].available, "the held size goes on"


def test_a_candidate_above_the_line_of_equal_price_is_cheaper_and_no_other(api: Api) -> None:
    trains(api)
    view = api.client.curve("job")
    assert view.held is not None
    for curve in view.offers:
        for point in curve.points:
            is_cheaper = point.usd_per_million_examples < view.held.usd_per_million_examples
            is_above = point.goodput > (point.equal_goodput or 0.0)
            assert is_cheaper == is_above or point == view.held


def test_a_decided_change_is_the_candidate(api: Api) -> None:
    trains(api)
    api.world.set_target("job", 3)
    api.world.tick(1)
    view = api.client.curve("job")
    assert view.candidate is not None
    assert view.candidate.allocation.instances == 3 or view.held is not None
    decision = view.decision
    assert decision is not None and decision.target is not None
    assert decision.target.instances == 3


def test_a_job_without_a_model_has_neither_curve_nor_outlook_but_a_reason(api: Api) -> None:
    api.client.submit(SPEC)
    assert api.client.curve("job").missing == "no throughput model is fitted yet"
    assert api.client.outlook("job").missing == "no throughput model is fitted yet"
    trains_later = api.client.outlook("job")
    assert trains_later.finish_seconds is None and trains_later.spent_usd == 0


def test_a_job_of_unknown_length_has_a_curve_only(api: Api) -> None:
    trains(api, reports=False)
    assert api.client.curve("job").missing is None
    assert "how much work" in (api.client.outlook("job").missing or "")


def test_the_outlook_has_bands_beside_deadline_and_budget(api: Api) -> None:
    trains(api)
    deadline = api.world.clock.now() + 3600.0
    objective = Objective(deadline_seconds=deadline, budget_usd=Decimal("5"))
    api.world.store.jobs.change_spec("job", objective=objective)
    view = api.client.outlook("job")
    assert view.finish_seconds is not None and view.total_usd is not None
    low, high = view.finish_seconds.band
    assert view.at_seconds < low <= view.finish_seconds.median <= high < deadline
    assert view.total_usd.band[0] > float(view.spent_usd) > 0
    assert (view.deadline_seconds, view.most_usd) == (deadline, Decimal("5"))
    assert view.sizes and view.sizes[0].from_seconds == view.at_seconds
    assert view.chance is not None and view.chance > 0.9


def test_assumptions_change_the_outlook_and_nothing_else(api: Api) -> None:
    trains(api)
    before = api.client.job("job")
    slow = api.client.assume("job", Hypothesis(value_of_time_usd_per_hour=0.001))
    fast = api.client.assume("job", Hypothesis(value_of_time_usd_per_hour=500.0))
    assert slow.objective.preference is Preference.VALUE_OF_TIME
    assert slow.present == replace(fast.present, at_seconds=slow.present.at_seconds)
    assert slow.assumed.finish_seconds is not None and fast.assumed.finish_seconds is not None
    assert fast.assumed.finish_seconds.median <= slow.assumed.finish_seconds.median
    deadline = api.world.clock.now() + 60.0
    soon = api.client.assume("job", Hypothesis(deadline_seconds=deadline, maximum=2))
    assert soon.maximum == 2 and soon.assumed.deadline_seconds == deadline
    assert all(
        size.allocation is None or size.allocation.instances <= 2 for size in soon.assumed.sizes
    )
    poor = api.client.assume("job", Hypothesis(budget_usd=Decimal("0.5")))
    assert poor.assumed.most_usd == Decimal("0.5")
    after = api.client.job("job")
    assert (after.objective, after.bounds) == (before.objective, before.bounds)


@pytest.mark.parametrize(
    ("assumed", "names"),
    [
        (Hypothesis(value_of_time_usd_per_hour=-1.0), "objective.value_of_time.*above"),
        (Hypothesis(value_of_time_usd_per_hour=float("nan")), "objective.value_of_time"),
        (Hypothesis(deadline_seconds=5.0), "deadline_seconds: has passed"),
        (Hypothesis(deadline_seconds=1e300), "objective.deadline"),
        (Hypothesis(budget_usd=Decimal(0)), "objective.budget"),
        (Hypothesis(maximum=0), "instances.max"),
        (Hypothesis(maximum=10**9), "instances.max"),
    ],
)
def test_an_impossible_assumption_is_refused_by_its_field(
    api: Api, assumed: Hypothesis, names: str
) -> None:
    trains(api)
    with pytest.raises(SpecError, match=names):
        api.client.assume("job", assumed)


def test_an_ended_job_keeps_its_curve_and_has_no_future(api: Api) -> None:
    trains(api)
    api.client.stop("job")
    api.world.tick(5)
    assert api.client.job("job").phase.is_final
    assert api.client.outlook("job").missing == "the job has ended"
    view = api.client.curve("job")
    assert view.missing is None and view.held is None
    with pytest.raises(Conflict, match="has ended"):
        api.client.assume("job", Hypothesis(maximum=2))
    with pytest.raises(UnknownJob):
        api.client.curve("nobody")


def test_a_dry_run_of_a_change_answers_what_the_next_plan_would_do(api: Api) -> None:
    trains(api)
    before, rows = api.client.job("job"), len(api.client.audit())
    steady = api.client.try_change("job", Change(objective=CHEAPEST))
    assert steady.decision is not None and steady.decision.target is not None
    assert steady.decision.target.instances == 1 and steady.usd_per_hour == Decimal("0.1000")
    hasty = Objective(Preference.VALUE_OF_TIME, value_of_time_usd_per_hour=1000.0)
    grown = api.client.try_change("job", Change(objective=hasty))
    assert grown.job.objective == hasty and grown.missing is None
    assert grown.decision is not None and grown.decision.target is not None
    assert grown.decision.action is Action.GROW and "grow job" in grown.decision.reason
    count = grown.decision.target.instances
    assert count > 1 and grown.usd_per_hour == count * Decimal("0.1000")
    assert grown.present.finish_seconds is not None and grown.changed.finish_seconds is not None
    assert grown.changed.finish_seconds.median < grown.present.finish_seconds.median
    assert grown.changed.total_usd is not None
    after = api.client.job("job")
    assert (after.version, after.decision) == (before.version, before.decision)
    assert len(api.client.audit()) == rows


def test_a_dry_run_counts_the_other_jobs(api: Api) -> None:
    trains(api)
    hasty = Objective(Preference.VALUE_OF_TIME, value_of_time_usd_per_hour=1000.0)
    api.client.change("job", Change(objective=hasty))
    api.client.submit(replace(SPEC, name="other", objective=hasty))
    api.world.set_target("other", 2)
    api.world.tick(2)
    status = api.world.controller.status
    assert status.snapshot is not None
    status.snapshot = replace(status.snapshot, limits=(Limit("cores", LimitUnit.INSTANCES, 3),))
    targets = {}
    for priority in (0.01, 100.0):
        plan = api.client.try_change("job", Change(priority=priority))
        assert plan.decision is not None
        targets[priority] = plan.decision.target
    assert targets[0.01] != targets[100.0]


def test_a_dry_run_plans_with_kinds_that_it_permits(api: Api) -> None:
    trains(api)
    status = api.world.controller.status
    small = status.offers[0]
    offers = (small, replace(small, id="fast", instance_type="fast", device_kind="h100"))
    assert status.snapshot is not None
    status.offers, status.believed = offers, OfferEstimates(offers)
    status.snapshot = replace(status.snapshot, offers=offers)
    bounds = InstanceBounds(maximum=4, offers=("fast",))
    plan = api.client.try_change("job", Change(instances=bounds))
    assert plan.decision is not None and plan.decision.target is not None
    assert plan.decision.target.offer == "fast" and plan.job.bounds == bounds
    assert api.world.store.measurements.models("job").keys() == {small.device_kind}


def test_a_dry_run_without_a_plan_says_why(api: Api) -> None:
    api.client.submit(SPEC)
    plan = api.client.try_change("job", Change(priority=4.0))
    assert plan.job.priority == 4.0 and plan.decision is None and plan.usd_per_hour is None
    assert plan.missing == "no throughput model is fitted yet"
    api.client.stop("job")
    with pytest.raises(Conflict, match="castor resume"):
        api.client.try_change("job", Change(priority=4.0))
