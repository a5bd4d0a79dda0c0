"""Jobs that can't be planned, ordered for or released fail alone, by name."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.controller.plan.isolation import (
    LEFT_OUT_GRACE_SECONDS,
    IsolatedPlanning,
    PlanningFailed,
    without_jobs,
)
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import StoreError
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Limit, LimitUnit
from autoscaler.domain.plan import Plan, ReasonCode
from autoscaler.domain.snapshot import Snapshot
from tests.controller.cloud import offer
from tests.controller.world import PlannedTargets, World
from tests.economics.cases import job, snapshot


class FailsFor:
    """A policy that raises while a snapshot has certain jobs."""

    def __init__(self, inner: PlannedTargets, *jobs: str) -> None:
        self.inner = inner
        self.jobs = set(jobs)
        self.calls = 0

    def plan(self, snapshot: Snapshot) -> Plan:
        self.calls += 1
        bad = self.jobs & {job.id for job in snapshot.jobs}
        if bad:
            raise OverflowError(f"int too large: {min(bad)}")
        return self.inner.plan(snapshot)


def _fails_for(world: World, *jobs: str) -> FailsFor:
    policy = FailsFor(PlannedTargets(world.policy.targets), *jobs)
    world.policy.plan = policy.plan  # type: ignore[method-assign]
    return policy


def test_a_job_that_the_policy_fails_for_does_not_stop_the_others(world: World) -> None:
    bad, good = world.submit("bad"), world.submit("good")
    world.set_target(good, 2)
    _fails_for(world, bad)
    world.tick(6)
    assert len(world.training(good)) == 2
    assert world.controller.status.job_troubles == {
        bad: f"can't be planned: OverflowError: int too large: {bad}"
    }
    told = [event for event in world.store.events.latest(bad) if event.kind == "not planned"]
    assert len(told) == 1, "an event each tick is noise"
    assert world.controller.status.failed_plans >= 1


def test_a_job_of_which_no_snapshot_can_be_taken_is_named(world: World, monkeypatch) -> None:
    bad, good = world.submit("bad"), world.submit("good")
    world.set_target(good, 1)
    snapshots = world.controller._snapshots
    taken = snapshots._told_of

    def fails(job, *arguments):  # type: ignore[no-untyped-def]
        if job.id == bad:
            raise OverflowError("int too large")
        return taken(job, *arguments)

    monkeypatch.setattr(snapshots, "_told_of", fails)
    world.tick(6)
    assert len(world.training(good)) == 1
    assert "int too large" in world.controller.status.job_troubles[bad]
    monkeypatch.setattr(snapshots, "_told_of", taken)
    world.tick(2)
    assert world.controller.status.job_troubles == {}
    kinds = [event.kind for event in world.store.events.latest(bad)]
    assert kinds.count("not planned") == kinds.count("planned again") == 1


def test_an_unplannable_job_shrinks_to_its_minimum_after_a_while(world: World) -> None:
    job = world.submit()
    world.set_target(job, 3)
    world.tick(6)
    _fails_for(world, job)
    world.tick(4)
    assert len(world.training(job)) == 3
    world.tick(8, seconds=LEFT_OUT_GRACE_SECONDS / 6)
    assert len(world.training(job)) == 1
    decision = world.store.journal.decisions(job)[0].decision
    assert decision.ground == ReasonCode.UNPLANNED and "minimum, 1 of small" in decision.reason


def test_a_job_is_planned_again_once_the_policy_succeeds(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    policy = _fails_for(world, job)
    world.tick(3)
    policy.jobs.clear()
    world.tick(20, seconds=15.0)
    assert len(world.training(job)) == 1
    assert world.controller.status.job_troubles == {}


def test_a_left_out_job_that_ends_is_not_said_to_be_planned_again(world: World) -> None:
    job = world.submit()
    _fails_for(world, job)
    world.tick(2)
    world.store.jobs.request_stop(job, world.clock.now())
    world.tick(6)
    kinds = [event.kind for event in world.store.events.latest(job)]
    assert "not planned" in kinds and "planned again" not in kinds
    assert world.controller.status.job_troubles == {}


def test_a_changed_job_is_planned_at_once(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    policy = _fails_for(world, job)
    world.tick(2)
    policy.jobs.clear()
    world.tick(2)
    assert world.training(job) == [], "the next try is in a minute"
    objective = Objective(budget_usd=Decimal(5))
    world.store.jobs.change_spec(job, objective=objective)
    world.tick(5)
    assert len(world.training(job)) == 1


def test_an_unplannable_job_is_not_tried_each_tick(world: World) -> None:
    jobs = [world.submit(f"job-{index}") for index in range(8)]
    policy = _fails_for(world, jobs[5])
    world.tick(1)
    first = policy.calls
    world.tick(20, seconds=1.0)
    assert policy.calls - first == 20, "one plan a tick, without the job"


def test_what_an_unplanned_job_holds_counts_against_the_limits(world: World) -> None:
    job = world.submit()
    world.set_target(job, 3)
    world.tick(6)
    other = world.submit("other")
    seen: list[Snapshot] = []
    policy = _fails_for(world, job)
    inner = policy.inner.plan

    def watched(snapshot: Snapshot) -> Plan:
        seen.append(snapshot)
        return inner(snapshot)

    policy.inner.plan = watched  # type: ignore[method-assign]
    world.tick(1)
    assert [planned.id for planned in seen[-1].jobs] == [other]
    room = {limit.name: limit.maximum for limit in seen[-1].limits}
    whole = {limit.name: limit.maximum for limit in world.controller.status.limits}
    assert all(room[name] == whole[name] - 3 for name in whole) and whole


def test_a_failed_order_is_shown_as_trouble_of_its_job(world: World) -> None:
    job, good = world.submit(), world.submit("good")
    world.set_target(job, 1, offer="nowhere")
    world.set_target(good, 1)
    world.tick(6)
    assert "order of instances" in world.controller.status.job_troubles[job]
    assert good not in world.controller.status.job_troubles and len(world.training(good)) == 1
    world.set_target(job, 1)
    world.tick(2)
    assert world.controller.status.job_troubles == {}


def test_a_lighthouse_that_cannot_be_started_is_shown(world: World, monkeypatch) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.tick(6)

    def fails(name: str) -> str:
        raise StoreError(f"no port is free for {name}")

    monkeypatch.setattr(world.lighthouses, "ensure", fails)
    world.tick(6)
    assert world.controller.status.job_troubles == {job: f"no port is free for {job}"}


def test_a_failure_that_no_job_is_responsible_for_is_told(world: World) -> None:
    world.submit("a"), world.submit("b")

    def fails(snapshot: Snapshot) -> Plan:
        if len(snapshot.jobs) > 1:
            raise ZeroDivisionError("two are too many")
        return Plan(())

    world.policy.plan = fails  # type: ignore[method-assign]
    world.tick(1)
    assert "two are too many" in (world.controller.status.trouble or "")
    troubles = world.controller.status.job_troubles  # both wait, and neither is left out
    assert set(troubles) == {"a", "b"} and "two are too many" in troubles["a"]


@given(count=st.integers(1, 12), bad=st.sets(st.integers(0, 11)), data=st.data())
def test_bisection_finds_exactly_the_failing_jobs(
    count: int, bad: set[int], data: st.DataObject
) -> None:
    names = [f"job-{index:02}" for index in range(count)]
    studies = data.draw(
        st.lists(st.sampled_from([None, "x", "y"]), min_size=count, max_size=count)
    )
    moment = snapshot(
        *(job(name, study=study) for name, study in zip(names, studies, strict=True))
    )
    failing = {names[index] for index in bad if index < count}
    policy = FailsFor(PlannedTargets(), *failing)
    plan, planned = IsolatedPlanning(policy).plan(moment)
    of_failing = {study for name, study in zip(names, studies, strict=True) if name in failing}
    left_out = failing | {
        name for name, study in zip(names, studies, strict=True) if study and study in of_failing
    }
    assert {decision.job for decision in plan.decisions} == set(names) - left_out
    assert {kept.id for kept in planned.jobs} == set(names) - left_out
    assert policy.calls <= 2 + 2 * len(failing) * (count.bit_length() + 1)


def test_a_policy_that_fails_without_jobs_is_reported() -> None:
    class Broken:
        def plan(self, snapshot: Snapshot) -> Plan:
            raise ZeroDivisionError("no solver")

    with pytest.raises(PlanningFailed, match="no solver"):
        IsolatedPlanning(Broken()).plan(snapshot(job("a")))


def test_limits_never_fall_below_zero_beside_held_instances() -> None:
    small = offer("small")
    held = replace(job("a"), held=Allocation("small", 5, 1))
    limits = (
        Limit("quota", LimitUnit.INSTANCES, 3),
        Limit("other", LimitUnit.DEVICES, 9, frozenset()),
    )
    moment = replace(snapshot(held, job("b")), offers=(small,), limits=limits)
    assert [limit.maximum for limit in without_jobs(moment, {"a"}).limits] == [0.0, 9.0]
