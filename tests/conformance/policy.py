"""Contract of `autoscaler.policies.base.Policy` as tests, for any policy.

Subclass `PolicyConformance`, and `StudiesConformance` if the policy plans studies. Define a
fixture `policy`. All examples of a test share the policy, so a policy that remembers earlier plans
fails.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.plan import Action, Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.policies.base import Policy
from tests.economics.cases import devices, job, snapshot
from tests.economics.strategies import searching, snapshots

FLEETS = snapshots(jobs=5, draws=3, all_measured=False, is_limited=True, has_ends=True)
STUDIES = searching(FLEETS)
# Jobs of at least 1e5 examples: a job that ends within one boot may move on every plan.
SURE = snapshots(jobs=4, is_limited=True, least_examples=1e5)
SIMPLE = snapshots(jobs=4, is_limited=True, is_simple=True)
shared_fixture = settings(
    deadline=None,
    max_examples=20,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.differing_executors,
        HealthCheck.too_slow,
    ],
)


def used(limit: Limit, moment: Snapshot, plan: Plan) -> float:
    by_id = {offer.id: offer for offer in moment.offers}
    return sum(
        limit.use(by_id[decision.target.offer]) * decision.target.instances
        for decision in plan.decisions
        if decision.target is not None
    )


def is_permitted(
    allocation: Allocation, job_snapshot: JobSnapshot, offers: dict[str, Offer]
) -> bool:
    bounds, offer = job_snapshot.instances, offers[allocation.offer]
    is_named = bounds.offers is None or {offer.id, offer.instance_type} & set(bounds.offers)
    return (
        bounds.minimum <= allocation.instances <= bounds.maximum
        and 1 <= allocation.devices_used <= offer.devices
        and bool(is_named)
    )


def after_plan(moment: Snapshot, plan: Plan) -> Snapshot:
    """Return the snapshot in which each job holds what was planned, and nothing else differs."""
    by_job: dict[str, Decision] = {decision.job: decision for decision in plan.decisions}
    return replace(
        moment,
        jobs=tuple(
            replace(
                job_snapshot,
                held=by_job[job_snapshot.id].target,
                trained=by_job[job_snapshot.id].target,
            )
            for job_snapshot in moment.jobs
            if by_job[job_snapshot.id].action is not Action.STOP
        ),
    )


def assert_one_decision_a_job(moment: Snapshot, plan: Plan) -> None:
    """Assert one decision for each job, in the order of the jobs' ids."""
    assert [decision.job for decision in plan.decisions] == sorted(
        job_snapshot.id for job_snapshot in moment.jobs
    )
    by_id = {job_snapshot.id: job_snapshot for job_snapshot in moment.jobs}
    for decision in plan.decisions:
        assert decision.current == by_id[decision.job].held


def assert_no_limit_is_passed(moment: Snapshot, plan: Plan) -> None:
    for limit in moment.limits:
        assert used(limit, moment, plan) <= limit.maximum * (1 + 1e-9) + 1e-9


def assert_bounds_are_kept(moment: Snapshot, plan: Plan) -> None:
    """Assert that gangs are whole and that instances have the devices that jobs use."""
    offers = {offer.id: offer for offer in moment.offers}
    by_id = {job_snapshot.id: job_snapshot for job_snapshot in moment.jobs}
    for decision in plan.decisions:
        if decision.target is not None:
            assert is_permitted(decision.target, by_id[decision.job], offers)


def assert_additions_fit_beside_held_instances(moment: Snapshot, plan: Plan) -> None:
    """Assert that instances launched before a release fit beside all held ones."""
    by_id = {offer.id: offer for offer in moment.offers}
    for limit in moment.limits:
        held = sum(
            limit.use(by_id[job_snapshot.held.offer]) * job_snapshot.held.instances
            for job_snapshot in moment.jobs
            if job_snapshot.held is not None
        )
        added = sum(
            limit.use(by_id[decision.target.offer]) * _added(decision)
            for decision in plan.decisions
            if decision.target is not None and not decision.release_first
        )
        assert added == 0 or held + added <= limit.maximum * (1 + 1e-9) + 1e-9


def assert_readable(moment: Snapshot, plan: Plan) -> None:
    """Assert that each reason has one line and that all figures are finite numbers."""
    for decision in plan.decisions:
        assert decision.job in decision.reason
        assert decision.reason.startswith(decision.action.value)
        assert "\n" not in decision.reason
        assert "nan" not in decision.reason
        assert all(math.isfinite(figure) for figure in decision.figures.values())
    assert set(plan.shadow_prices) == {limit.name for limit in moment.limits}
    assert all(0 <= price < math.inf for price in plan.shadow_prices.values())
    assert 0 <= plan.gap_usd_per_second < math.inf


def assert_refused_offers_are_not_extended(refused: frozenset[str], plan: Plan) -> None:
    """Assert that no job gets more of a refused offer than it holds."""
    for decision in plan.decisions:
        target, held = decision.target, decision.current
        if target is not None and target.offer in refused:
            assert held is not None
            assert held.offer == target.offer
            assert held.instances >= target.instances


def assert_order_does_not_matter(policy: Policy, moment: Snapshot, data: st.DataObject) -> None:
    """Assert equal plans for equal snapshots and for other orders of jobs and offers."""
    plan = policy.plan(moment)
    assert policy.plan(moment) == plan
    mixed = replace(
        moment,
        jobs=tuple(data.draw(st.permutations(moment.jobs))),
        studies=tuple(
            replace(study, trials=tuple(data.draw(st.permutations(study.trials))))
            for study in data.draw(st.permutations(moment.studies))
        ),
        offers=tuple(data.draw(st.permutations(moment.offers))),
    )
    assert policy.plan(mixed) == plan


class PolicyConformance:
    plans_until_settled = 1

    @given(moment=FLEETS)
    @settings(shared_fixture, max_examples=30)
    def test_plans_are_feasible_and_readable(self, policy: Policy, moment: Snapshot) -> None:
        plan = policy.plan(moment)
        assert_one_decision_a_job(moment, plan)
        assert_no_limit_is_passed(moment, plan)
        assert_bounds_are_kept(moment, plan)
        assert_additions_fit_beside_held_instances(moment, plan)
        assert_readable(moment, plan)

    @given(moment=FLEETS, data=st.data())
    @shared_fixture
    def test_no_plan_adds_instances_of_an_unavailable_offer(
        self, policy: Policy, moment: Snapshot, data: st.DataObject
    ) -> None:
        ids = [offer.id for offer in moment.offers]
        refused = data.draw(st.frozensets(st.sampled_from(ids)))
        plan = policy.plan(replace(moment, unavailable=refused))
        assert_refused_offers_are_not_extended(refused, plan)

    @given(moment=FLEETS, data=st.data())
    @shared_fixture
    def test_the_order_of_jobs_and_offers_does_not_change_the_plan(
        self, policy: Policy, moment: Snapshot, data: st.DataObject
    ) -> None:
        assert_order_does_not_matter(policy, moment, data)

    @given(moment=SIMPLE)
    @shared_fixture
    def test_planning_again_from_the_planned_state_changes_nothing(
        self, policy: Policy, moment: Snapshot
    ) -> None:
        for _ in range(self.plans_until_settled):
            moment = after_plan(moment, policy.plan(moment))
        for decision in policy.plan(moment).decisions:
            assert decision.target == decision.current, decision.reason
            assert decision.action in (Action.HOLD, Action.WAIT, Action.STOP)

    @given(moment=SURE)
    @shared_fixture
    def test_repeated_planning_converges_without_cycles(
        self, policy: Policy, moment: Snapshot
    ) -> None:
        earlier_targets = []
        for _ in range(6):
            plan = policy.plan(moment)
            if all(decision.target == decision.current for decision in plan.decisions):
                return
            targets = [decision.target for decision in plan.decisions]
            assert targets not in earlier_targets
            earlier_targets.append(targets)
            moment = after_plan(moment, plan)
        pytest.fail("still changing after six plans")

    def test_snapshots_without_jobs_or_capacity_start_nothing(self, policy: Policy) -> None:
        assert policy.plan(snapshot()).decisions == ()
        (decision,) = policy.plan(snapshot(job(), offers=())).decisions
        assert (decision.action, decision.target) == (Action.WAIT, None)
        (decision,) = policy.plan(snapshot(job(), limits=[devices(0)])).decisions
        assert (decision.action, decision.target) == (Action.WAIT, None)


class StudiesConformance:
    """Contract of a policy that plans the trials of studies together, not as separate jobs."""

    @given(moment=STUDIES, data=st.data())
    @settings(shared_fixture, max_examples=25)
    def test_plans_of_trials_are_feasible_and_readable(
        self, policy: Policy, moment: Snapshot, data: st.DataObject
    ) -> None:
        """Check plans of trials beside other jobs, in any order of studies and trials."""
        refused = data.draw(st.frozensets(st.sampled_from([offer.id for offer in moment.offers])))
        moment = replace(moment, unavailable=refused)
        plan = policy.plan(moment)
        assert_one_decision_a_job(moment, plan)
        assert_no_limit_is_passed(moment, plan)
        assert_bounds_are_kept(moment, plan)
        assert_additions_fit_beside_held_instances(moment, plan)
        assert_readable(moment, plan)
        assert_refused_offers_are_not_extended(refused, plan)
        assert_order_does_not_matter(policy, moment, data)


def _added(decision: Decision) -> int:
    """Return the number of instances that a decision adds to those held of its offer."""
    target, held = decision.target, decision.current
    assert target is not None
    kept = held.instances if held is not None and held.offer == target.offer else 0
    return max(target.instances - kept, 0)
