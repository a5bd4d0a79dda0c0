from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

import pytest

from autoscaler.domain.errors import (
    InsufficientCapacity,
    PermissionDenied,
    QuotaExceeded,
    Throttled,
    Unavailable,
)
from autoscaler.domain.instance import (
    CONTROLLER_TAG,
    INSTANCE_TAG,
    JOB_TAG,
    Desired,
    InstancePhase,
    LaunchRequest,
)
from autoscaler.domain.job import JobPhase
from autoscaler.domain.objective import Objective
from autoscaler.domain.plan import Action, Plan, ReasonCode
from autoscaler.domain.report import Failure
from autoscaler.domain.snapshot import Snapshot
from tests.controller.world import PlannedTargets, World


def _fail(world: World, job: str, signature: str = "boom", attempt: int = 1, steps: int = 0):
    held = world.training(job)[0]
    failure = Failure(held.id, attempt, 1, f"the script raised {signature}", signature, steps)
    world.store.reports.add_failure(job, failure, world.clock.now())


def test_a_job_is_bought_for_trains_finishes_and_holds_nothing(world: World) -> None:
    job = world.submit()
    world.set_target(job, 2)
    world.tick(6)
    assert len(world.training(job)) == 2
    assert world.store.jobs.get(job).phase is JobPhase.RUNNING
    assert world.lighthouses.running == {job}
    for held in world.training(job):
        world.complete(held)
    world.tick(6)
    assert world.store.jobs.get(job).phase is JobPhase.FINISHED
    assert world.cloud.running() == []
    assert world.lighthouses.running == set()
    world.assert_nothing_leaked()


def test_an_instance_that_has_done_its_part_is_terminated_as_its_job_finishes(
    world: World,
) -> None:
    """Not a tick later: nothing is left on it to wait for, and it costs money."""
    job = world.submit("alone")
    world.set_target(job, 1)
    world.tick(6)
    (held,) = world.training(job)
    world.complete(held)
    world.tick()
    assert world.store.jobs.get(job).phase is JobPhase.FINISHED
    assert world.cloud.running() == []


def test_a_tick_reports_whether_an_instance_has_still_to_end(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.tick(4)
    assert not world.controller.tick(world.clock.now()).awaits_end
    (held,) = world.training(job)
    world.complete(held)
    world.clock.advance(2.0)
    assert world.controller.tick(world.clock.now()).awaits_end
    world.tick(4)
    assert not world.controller.tick(world.clock.now()).awaits_end


def test_a_job_is_not_finished_while_another_replica_is_at_it(world: World) -> None:
    job = world.submit()
    world.set_target(job, 2)
    world.tick(6)
    first, second = world.training(job)
    world.complete(first)
    world.tick(2)
    assert world.store.jobs.get(job).phase is JobPhase.RUNNING
    assert world.store.instances.get(second.id).desired is Desired.PRESENT
    world.complete(second)
    world.tick(4)
    assert world.store.jobs.get(job).phase is JobPhase.FINISHED


def test_those_who_have_done_their_part_go_and_one_tells_the_end(world: World) -> None:
    job = world.submit()
    world.set_target(job, 3)
    world.tick(6)
    first, second, decider = world.training(job)
    for held in (first, second):
        world.do_part(held)
    world.tick(6)
    assert world.store.jobs.get(job).phase is JobPhase.RUNNING
    assert [held.id for held in world.store.instances.of_job(job)] == [decider.id]
    assert len(world.cloud.instances()) == 3, "nothing is bought for a job at its end"
    world.complete(decider)
    world.tick(4)
    assert world.store.jobs.get(job).phase is JobPhase.FINISHED
    world.assert_nothing_leaked()


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_job_whose_last_replica_does_not_tell_the_end_goes_on(
    world: World, is_lost: bool
) -> None:
    job = world.submit()
    world.set_target(job, 2)
    world.tick(6)
    first, decider = world.training(job)
    world.do_part(first)
    world.tick(3)
    if is_lost:
        assert decider.cloud_id is not None
        world.cloud.lose(decider.cloud_id)
    else:
        failure = Failure(decider.id, 1, 1, "the last state is not saved", "boom", 100)
        world.store.reports.add_failure(job, failure, world.clock.now())
    world.tick(12)
    record = world.store.jobs.get(job)
    assert (record.phase, record.attempt) == (JobPhase.RUNNING, 2)
    again = world.training(job)
    assert len(again) == 2, "it is planned for again"
    for held in again:
        world.complete(held)
    world.tick(4)
    assert world.store.jobs.get(job).phase is JobPhase.FINISHED
    world.assert_nothing_leaked()


def test_growth_comes_before_and_shrinkage_waits_for_the_drain(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.tick(6)
    world.set_target(job, 3)
    world.tick(6)
    assert len(world.training(job)) == 3
    world.set_target(job, 1)
    world.tick(1, agents=False)
    draining = [
        held for held in world.store.instances.of_job(job) if held.desired is Desired.ABSENT
    ]
    assert len(draining) == 2
    assert len(world.cloud.running()) == 3, "nothing is terminated before it has drained"
    assert {held.slot for held in draining} == {1, 2}, "the youngest go first"
    world.tick(3)
    assert len(world.cloud.running()) == 1


def test_orders_wait_for_room_that_a_draining_instance_takes(tmp_path) -> None:
    world = World(tmp_path, devices=2)
    first, second = world.submit("first"), world.submit("second")
    world.set_target(first, 2)
    world.tick(6)
    world.set_target(first, 1)
    world.set_target(second, 1)
    world.tick(1, agents=False)
    assert world.store.instances.of_job(second) == ()
    world.tick(8)
    assert (len(world.training(first)), len(world.training(second))) == (1, 1)
    assert world.store.capacity.refusals() == {}


def test_a_lost_instance_is_replaced_and_billed_until_it_ended(world: World) -> None:
    job = world.submit()
    world.set_target(job, 2)
    world.tick(6)
    lost = world.training(job)[0]
    assert lost.cloud_id is not None
    world.cloud.lose(lost.cloud_id)
    world.tick(6)
    assert len(world.training(job)) == 2
    assert world.store.jobs.get(job).attempt == 1, "a lost instance is never a failure"
    assert any(event.kind == "instance lost" for event in world.store.events.latest(job))
    world.assert_nothing_leaked()


def test_a_failure_is_retried_after_a_pause_and_counted_once(world: World) -> None:
    job = world.submit()
    world.set_target(job, 2)
    world.tick(6)
    for held in world.training(job):
        failure = Failure(held.id, 1, 1, "the script raised boom", "boom", 100)
        world.store.reports.add_failure(job, failure, world.clock.now())
    world.tick(2)
    record = world.store.jobs.get(job)
    assert record.attempt == 2
    assert record.retry_seconds is not None
    assert record.phase is JobPhase.RUNNING


def test_the_same_trace_in_the_first_steps_ends_the_job_and_the_others_go_on(world: World) -> None:
    job, other = world.submit(), world.submit("other")
    world.set_target(job, 1)
    world.set_target(other, 1)
    world.tick(6)
    _fail(world, job)
    world.tick(1)
    _fail(world, job, attempt=2)
    world.tick(6)
    record = world.store.jobs.get(job)
    assert record.phase is JobPhase.FAILED
    assert (record.cause or "").count("boom") == 1
    assert "(not retried, the same failure came back within 5 steps)" in (record.cause or "")
    assert world.store.instances.of_job(job) == ()
    assert len(world.training(other)) == 1


def test_stop_drains_and_gives_everything_back(world: World) -> None:
    job = world.submit()
    world.set_target(job, 3)
    world.tick(6)
    world.store.jobs.request_stop(job, world.clock.now())
    world.tick(1, agents=False)
    assert len(world.cloud.running()) == 3, "they drain first"
    world.tick(6)
    assert world.store.jobs.get(job).phase is JobPhase.STOPPED
    assert world.cloud.running() == []
    world.assert_nothing_leaked()


def test_an_instance_that_does_not_drain_is_ended_all_the_same(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.tick(6)
    world.store.jobs.request_stop(job, world.clock.now())
    world.tick(3, seconds=100.0, agents=False)
    assert world.cloud.running() == []


def test_a_budget_is_not_passed(world: World) -> None:
    budget = Decimal("0.01")
    job = world.submit(objective=Objective(budget_usd=budget))
    world.set_target(job, 4)
    world.tick(200, seconds=1.0)
    record = world.store.jobs.get(job)
    assert record.phase is JobPhase.STOPPED
    assert "larger budget" in (record.cause or "")
    assert budget / 2 < world.cloud.billed_usd() <= budget


@pytest.mark.parametrize("error", [InsufficientCapacity, QuotaExceeded, PermissionDenied])
def test_a_refusal_is_told_backed_off_from_and_costs_nothing(world: World, error) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.cloud.refusals = [error("no more of it")]
    world.tick(1)
    assert world.store.capacity.unavailable(world.clock.now()) == {"small"}
    assert world.store.ledger.entries() == ()
    event = world.store.events.latest(job)[0]
    assert error.__name__ in event.text and "no more of it" in event.text


def test_what_is_refused_at_once_is_waited_for_once(world: World) -> None:
    job = world.submit()
    world.set_target(job, 4)
    world.cloud.refusals = [InsufficientCapacity("no more of it") for _ in range(4)]
    world.tick(1)
    told = world.store.events.latest(job)
    assert len(told) == 4
    assert all("not asked for again in 15 s" in event.text for event in told)


def test_a_role_that_is_given_back_is_made_use_of_within_a_minute(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.cloud.refusals = [PermissionDenied("allow RunInstances to the controller's role")]
    world.tick(1)
    world.tick(7, seconds=10.0)
    assert len(world.training(job)) == 1


def test_what_is_not_known_is_asked_again_with_the_same_token(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)

    def lose_reply(call: str) -> None:
        if call == "launch":
            world.cloud.after_call = lambda name: None
            raise Unavailable("the reply was lost")

    world.cloud.after_call = lose_reply
    world.tick(8)
    assert len(world.cloud.instances()) == 1
    assert len(world.training(job)) == 1
    world.assert_nothing_leaked()


def test_throttled_calls_wait_as_long_as_they_were_told(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.cloud.refusals = [Throttled("slow down", retry_after_seconds=30.0)]
    world.tick(10, seconds=2.0)
    assert world.cloud.launch_calls == 1
    world.tick(10, seconds=2.0)
    assert len(world.cloud.running()) == 1


def test_a_cloud_that_does_not_answer_is_not_an_empty_cloud(world: World) -> None:
    job = world.submit()
    world.set_target(job, 2)
    world.tick(6)
    world.cloud.answers = False
    for _ in range(5):
        world.clock.advance(400.0)
        for held in world.store.instances.alive():
            phase = InstancePhase.TRAINING
            world.store.instances.record_node(held.id, phase, world.clock.now())
        report = world.controller.tick(world.clock.now())
    assert "does not answer" in (report.trouble or "")
    assert len(world.training(job)) == 2
    world.cloud.answers = True
    world.tick(2)
    assert len(world.cloud.running()) == 2


def test_an_orphan_is_ended_at_the_second_sight_and_only_when_old(world: World) -> None:
    tags = {
        CONTROLLER_TAG: world.store.settings.controller_id(),
        JOB_TAG: "gone",
        INSTANCE_TAG: "gone-0-1",
    }
    world.cloud.launch(LaunchRequest("stray", "small", tags, ""))
    world.tick(2)
    assert len(world.cloud.running()) == 1, "too young to be sure"
    world.tick(1, seconds=20.0)
    world.tick(1)
    assert world.cloud.running() == []
    assert any(event.kind == "orphan" for event in world.store.events.latest())


def test_an_instance_whose_agent_never_comes_or_falls_silent_is_replaced(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.tick(1, agents=False)
    world.tick(28, seconds=25.0, agents=False)
    world.tick(6)
    assert len(world.training(job)) == 1
    world.tick(6, seconds=25.0, agents=False)
    world.tick(6)
    assert len(world.training(job)) == 1
    given_up = [
        each for each in world.store.events.latest(job) if each.kind == "instance given up"
    ]
    assert len(given_up) == 2
    world.assert_nothing_leaked()


def test_a_policy_that_raises_leaves_the_last_plan_in_force(world: World, caplog) -> None:
    job = world.submit()
    world.set_target(job, 2)
    world.tick(6)

    def broken(snapshot: Snapshot) -> Plan:
        raise ZeroDivisionError("no solution")

    world.policy.plan = broken  # type: ignore[method-assign]
    lost = world.training(job)[0]
    world.cloud.lose(lost.cloud_id or "")
    world.tick(6)
    assert len(world.training(job)) == 2
    assert "planning failed" in caplog.text
    assert world.controller.status.failed_plans > 0


def test_plans_that_a_solver_failed_at_are_done_counted_and_logged(world: World, caplog) -> None:
    job = world.submit()
    world.set_target(job, 1)
    plan = world.policy.plan
    world.policy.plan = lambda snapshot: replace(  # type: ignore[method-assign]
        plan(snapshot), notes=("planned greedily: time is up",)
    )
    world.tick(6)
    assert len(world.training(job)) == 1
    status = world.controller.status
    assert status.solver_failures > 0 and status.failed_plans == 0
    assert "planned without the solver: planned greedily: time is up" in caplog.text


def test_a_fleet_cap_counts_what_is_still_leaving(tmp_path) -> None:
    world = World(tmp_path)
    world.settings = replace(world.settings, fleet_usd_per_hour=0.25)
    world.restart()
    job = world.submit()
    world.set_target(job, 4)
    world.tick(8)
    assert len(world.cloud.running()) == 2


def test_every_decision_can_be_explained_from_what_was_stored(world: World) -> None:
    job = world.submit()
    world.set_target(job, 2)
    world.tick(8)
    entries = world.store.journal.decisions(job)
    assert [entry.decision.action for entry in entries][-1] == "grow"
    snapshot = world.store.journal.inputs(entries[-1])
    assert snapshot.jobs[0].id == job
    again = world.policy.plan(snapshot)
    assert again.decisions[0].target == entries[-1].decision.target


def test_a_stay_is_told_once(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.tick(40)
    told = [entry.decision.action for entry in world.store.journal.decisions(job)]
    assert told.count("hold") <= 2


def test_a_refused_offer_is_not_ordered_again_before_its_time(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.cloud.refusals = [InsufficientCapacity("no more of it")]
    world.tick(1)
    world.tick(10, seconds=1.0)
    assert len(world.store.instances.of_job(job, include_ended=True)) == 1
    world.tick(6, seconds=10.0)
    assert len(world.training(job)) == 1


@dataclass
class Explains(PlannedTargets):
    """A policy whose reasons the test words."""

    code: ReasonCode = ReasonCode.NONE
    words: str = ""
    note: str = ""

    def plan(self, snapshot: Snapshot) -> Plan:
        plan = super().plan(snapshot)
        decisions = (
            replace(decision, ground=self.code, reason=self.words, note=self.note)
            for decision in plan.decisions
        )
        return replace(plan, decisions=tuple(decisions))


def test_a_stay_is_reported_again_for_another_code_and_not_for_other_words(world: World) -> None:
    world.policy = policy = Explains()
    world.restart()
    job = world.submit()
    world.set_target(job, 1)
    world.tick(6)
    policy.code = ReasonCode.LEAST_COST
    world.tick()
    for words in ("4 x would add +2 ex/s", "no room: gpus 4 of 4 in use"):
        policy.words = words
        world.tick()
    policy.code = ReasonCode.OUTBID
    world.tick(2)
    policy.note = "its deadline can't be kept: it ends 3 min later"
    world.tick()
    policy.note = "its deadline can't be kept: it ends 4 min later"
    world.tick()
    stays = [
        (entry.decision.ground, bool(entry.decision.note))
        for entry in reversed(world.store.journal.decisions(job))
        if entry.decision.action is Action.HOLD
    ]
    assert stays == [
        (ReasonCode.NONE, False),
        (ReasonCode.LEAST_COST, False),
        (ReasonCode.OUTBID, False),
        (ReasonCode.OUTBID, True),
    ]


def test_the_cause_of_a_failed_job_names_what_failed_in_its_setup(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.tick(6)
    for attempt in (1, 2):
        (held,) = world.training(job)
        failure = Failure(held.id, attempt, 1, "no wheel", "no wheel", 0, during_setup=True)
        world.store.reports.add_failure(job, failure, world.clock.now())
        world.tick(6)
    record = world.store.jobs.get(job)
    assert record.cause == "setup failed: no wheel (not retried, setup is tried twice at most)"
