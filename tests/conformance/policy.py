"""The contract of `autoscaler.policies.base.Policy` as tests, for any policy.

Subclass `PolicyConformance`, and `StudiesConformance` where studies are planned, and give it a
fixture `policy`. It is shared by all examples of a test, so that a policy that remembers what it
planned fails.
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
# A job that ends sooner than an instance boots is over before it matters where it went.
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


def is_permitted(allocation: Allocation, one: JobSnapshot, offers: dict[str, Offer]) -> bool:
    bounds, found = one.instances, offers[allocation.offer]
    named = bounds.offers is None or {found.id, found.instance_type} & set(bounds.offers)
    return (
        bounds.minimum <= allocation.instances <= bounds.maximum
        and 1 <= allocation.devices_used <= found.devices
        and bool(named)
    )


def arrived(moment: Snapshot, plan: Plan) -> Snapshot:
    """The moment in which everybody has what was planned, and nothing else has changed."""
    by_job: dict[str, Decision] = {decision.job: decision for decision in plan.decisions}
    return replace(
        moment,
        jobs=tuple(
            replace(one, held=by_job[one.id].target, trained=by_job[one.id].target)
            for one in moment.jobs
            if by_job[one.id].action is not Action.STOP
        ),
    )


def assert_one_decision_a_job(moment: Snapshot, plan: Plan) -> None:
    """In the order of their ids."""
    assert [decision.job for decision in plan.decisions] == sorted(j.id for j in moment.jobs)
    by_id = {one.id: one for one in moment.jobs}
    for decision in plan.decisions:
        assert decision.current == by_id[decision.job].held


def assert_no_limit_is_passed(moment: Snapshot, plan: Plan) -> None:
    for limit in moment.limits:
        assert used(limit, moment, plan) <= limit.maximum * (1 + 1e-9) + 1e-9


def assert_bounds_are_kept(moment: Snapshot, plan: Plan) -> None:
    """Gangs are whole, and instances have the devices that are used."""
    offers = {offer.id: offer for offer in moment.offers}
    by_id = {one.id: one for one in moment.jobs}
    for decision in plan.decisions:
        if decision.target is not None:
            assert is_permitted(decision.target, by_id[decision.job], offers)


def assert_what_comes_at_once_has_room(moment: Snapshot, plan: Plan) -> None:
    """Beside all that is held."""
    by_id = {offer.id: offer for offer in moment.offers}
    for limit in moment.limits:
        held = sum(
            limit.use(by_id[one.held.offer]) * one.held.instances
            for one in moment.jobs
            if one.held is not None
        )
        coming = sum(
            limit.use(by_id[decision.target.offer]) * _coming(decision)
            for decision in plan.decisions
            if decision.target is not None and not decision.release_first
        )
        assert coming == 0 or held + coming <= limit.maximum * (1 + 1e-9) + 1e-9


def assert_readable(moment: Snapshot, plan: Plan) -> None:
    """Reasons of one line, and figures that are numbers."""
    for decision in plan.decisions:
        assert decision.job in decision.reason
        assert decision.reason.startswith(decision.action.value)
        assert "\n" not in decision.reason
        assert "nan" not in decision.reason
        assert all(math.isfinite(figure) for figure in decision.figures.values())
    assert set(plan.shadow_prices) == {limit.name for limit in moment.limits}
    assert all(0 <= price < math.inf for price in plan.shadow_prices.values())
    assert 0 <= plan.gap_usd_per_second < math.inf


def assert_no_more_of_what_is_refused(refused: frozenset[str], plan: Plan) -> None:
    """Than is held of it."""
    for decision in plan.decisions:
        target, held = decision.target, decision.current
        if target is not None and target.offer in refused:
            assert held is not None
            assert held.offer == target.offer
            assert held.instances >= target.instances


def assert_order_says_nothing(policy: Policy, moment: Snapshot, data: st.DataObject) -> None:
    """The same plan again, and for the same jobs and offers in another order."""
    plan = policy.plan(moment)
    assert policy.plan(moment) == plan
    mixed = replace(
        moment,
        jobs=tuple(data.draw(st.permutations(moment.jobs))),
        studies=tuple(
            replace(one, trials=tuple(data.draw(st.permutations(one.trials))))
            for one in data.draw(st.permutations(moment.studies))
        ),
        offers=tuple(data.draw(st.permutations(moment.offers))),
    )
    assert policy.plan(mixed) == plan


class PolicyConformance:
    plans_until_settled = 1

    @given(moment=FLEETS)
    @settings(shared_fixture, max_examples=30)
    def test_whatever_the_moment_the_plan_can_be_carried_out_and_read(
        self, policy: Policy, moment: Snapshot
    ) -> None:
        plan = policy.plan(moment)
        assert_one_decision_a_job(moment, plan)
        assert_no_limit_is_passed(moment, plan)
        assert_bounds_are_kept(moment, plan)
        assert_what_comes_at_once_has_room(moment, plan)
        assert_readable(moment, plan)

    @given(moment=FLEETS, data=st.data())
    @shared_fixture
    def test_of_an_unavailable_offer_no_more_is_wanted_than_is_held(
        self, policy: Policy, moment: Snapshot, data: st.DataObject
    ) -> None:
        ids = [offer.id for offer in moment.offers]
        refused = data.draw(st.frozensets(st.sampled_from(ids)))
        plan = policy.plan(replace(moment, unavailable=refused))
        assert_no_more_of_what_is_refused(refused, plan)

    @given(moment=FLEETS, data=st.data())
    @shared_fixture
    def test_equal_moments_give_equal_plans_in_whatever_order(
        self, policy: Policy, moment: Snapshot, data: st.DataObject
    ) -> None:
        assert_order_says_nothing(policy, moment, data)

    @given(moment=SIMPLE)
    @shared_fixture
    def test_planning_again_from_where_the_plan_leads_changes_nothing(
        self, policy: Policy, moment: Snapshot
    ) -> None:
        for _ in range(self.plans_until_settled):
            moment = arrived(moment, policy.plan(moment))
        for decision in policy.plan(moment).decisions:
            assert decision.target == decision.current, decision.reason
            assert decision.action in (Action.HOLD, Action.WAIT, Action.STOP)

    @given(moment=SURE)
    @shared_fixture
    def test_planning_comes_to_rest_and_never_back(self, policy: Policy, moment: Snapshot) -> None:
        seen = []
        for _ in range(6):
            plan = policy.plan(moment)
            if all(decision.target == decision.current for decision in plan.decisions):
                return
            targets = [decision.target for decision in plan.decisions]
            assert targets not in seen
            seen.append(targets)
            moment = arrived(moment, plan)
        pytest.fail("still changing after six plans")

    def test_nothing_to_plan_for_and_nothing_to_plan_with(self, policy: Policy) -> None:
        assert policy.plan(snapshot()).decisions == ()
        (decision,) = policy.plan(snapshot(job(), offers=())).decisions
        assert (decision.action, decision.target) == (Action.WAIT, None)
        (decision,) = policy.plan(snapshot(job(), limits=[devices(0)])).decisions
        assert (decision.action, decision.target) == (Action.WAIT, None)


class StudiesConformance:
    """Of a policy that plans the trials of studies together; for the others they are jobs."""

    @given(moment=STUDIES, data=st.data())
    @settings(shared_fixture, max_examples=25)
    def test_of_trials_the_same_holds(
        self, policy: Policy, moment: Snapshot, data: st.DataObject
    ) -> None:
        """With other jobs beside them, and whatever the order of studies and their trials."""
        refused = data.draw(st.frozensets(st.sampled_from([one.id for one in moment.offers])))
        moment = replace(moment, unavailable=refused)
        plan = policy.plan(moment)
        assert_one_decision_a_job(moment, plan)
        assert_no_limit_is_passed(moment, plan)
        assert_bounds_are_kept(moment, plan)
        assert_what_comes_at_once_has_room(moment, plan)
        assert_readable(moment, plan)
        assert_no_more_of_what_is_refused(refused, plan)
        assert_order_says_nothing(policy, moment, data)


def _coming(decision: Decision) -> int:
    target, held = decision.target, decision.current
    assert target is not None
    kept = held.instances if held is not None and held.offer == target.offer else 0
    return max(target.instances - kept, 0)
