"""Scripts that open no session: they run on one instance, and no plan disturbs them."""

from __future__ import annotations

import pytest

from autoscaler.controller.jobs.sessions import GRACE_SECONDS, ONE_INSTANCE_TEXT, session_facts
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.job import InstanceBounds, JobPhase
from autoscaler.domain.objective import Objective, Preference
from autoscaler.policies.marginal.policy import MarginalPolicy
from tests.controller.few_devices import FewDevices, Submitted, local_offers

BOOT_SECONDS = 5.0
JOB = Submitted("job", run_seconds=400.0, minimum=2)


class _Sessionless(FewDevices):
    """One instance of a job runs its script, and the others wait until they may start it."""

    def __init__(self) -> None:
        super().__init__(MarginalPolicy(), local_offers(BOOT_SECONDS), devices=4)
        self.runner: str | None = None
        self.lost_seconds: float | None = None

    def _report_from_agent(self, held: HeldInstance) -> None:
        now_seconds = self.clock.now()
        if self.lost_seconds is not None and self.passed_seconds >= self.lost_seconds:
            self.lost_seconds, self.runner = None, None
            self.store.instances.release(held.id, now_seconds)
            return
        if held.desired is Desired.ABSENT:
            super()._report_from_agent(held)
            return
        self.runner = self.runner or held.id
        if held.id != self.runner:
            self.store.instances.record_node(held.id, InstancePhase.READY, now_seconds)
            return
        facts = session_facts(held, InstancePhase.STARTING, False, now_seconds)
        began_seconds = self._began_seconds.setdefault(held.id, now_seconds)
        if now_seconds - began_seconds >= JOB.run_seconds:
            facts[Fact.COMPLETE] = str(now_seconds)
        self.store.instances.record_node(held.id, InstancePhase.STARTING, now_seconds, facts)


def test_a_job_of_two_instances_without_a_session_ends_on_the_one_that_runs_it() -> None:
    world = _Sessionless()
    ended = world.run([JOB], 3 * JOB.run_seconds)
    assert ended["job"].after_seconds < JOB.run_seconds + 2 * BOOT_SECONDS
    assert world.runner not in [held.id for held in world.lost_boots()]
    assert ended["job"].launches == 2
    reasons = [entry.decision.reason for entry in world.store.journal.decisions("job", limit=9)]
    assert reasons[0] == f"shrink job 2 -> 1 x local-small (spot): {ONE_INSTANCE_TEXT}"


def test_a_script_that_is_known_to_open_no_session_starts_again_on_one_instance() -> None:
    world = _Sessionless()
    world.lost_seconds = 200.0
    ended = world.run([JOB], 3 * JOB.run_seconds)
    assert ended["job"].launches == 3, "two at first, one after the loss"
    decisions = world.store.journal.decisions("job", limit=9)
    last = next(each.decision for each in decisions if each.decision.current is None)
    assert last.target is not None and last.target.instances == 1
    assert last.reason.endswith(f"; {ONE_INSTANCE_TEXT}")


def test_nothing_is_planned_for_a_job_whose_end_is_reported_while_a_plan_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its minimum binds no more: the device is left to the job that trains on it."""
    world = FewDevices(MarginalPolicy(), local_offers(BOOT_SECONDS), devices=2)
    world.run([Submitted(name, run_seconds=1e6) for name in ("ending", "other")], 120.0)
    (held,) = world.store.instances.of_job("ending")
    (trains,) = world.store.instances.of_job("other")
    dear = Objective(Preference.FASTEST)
    world.store.jobs.change_spec("ending", dear, InstanceBounds(2, 2), None)

    def end(*_: object) -> None:
        now_seconds = world.clock.now()
        facts = {Fact.COMPLETE: str(now_seconds)}
        world.store.instances.record_node(held.id, InstancePhase.DRAINED, now_seconds, facts)

    monkeypatch.setattr("autoscaler.controller.controller.measure_starts", end)
    world.run([], 122.0)
    assert world.store.jobs.get("ending").phase is JobPhase.FINISHED
    assert world.store.instances.get(trains.id).desired is Desired.PRESENT
    assert [each.id for each in world.store.instances.of_job("ending", True)] == [held.id]


@pytest.mark.parametrize("minimum", [1, 2])
def test_a_job_runs_once_its_script_has_run_for_a_while(minimum: int) -> None:
    world = _Sessionless()
    job = Submitted("job", run_seconds=JOB.run_seconds, minimum=minimum)
    world.run([job], BOOT_SECONDS + GRACE_SECONDS / 2)
    assert world.store.jobs.get("job").phase is JobPhase.PENDING
    world.run([], BOOT_SECONDS + GRACE_SECONDS + 5.0)
    assert world.store.jobs.get("job").phase is JobPhase.RUNNING
    (held, *_) = world.store.instances.alive()
    assert held.phase is InstancePhase.STARTING, "it counts as no measured start"
    assert held.training_seconds is None
