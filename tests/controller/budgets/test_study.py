"""A study never costs more than its budget."""

from __future__ import annotations

from decimal import Decimal

import pytest

from autoscaler.controller.budgets.spending import Spending
from autoscaler.domain.errors import LedgerError
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase, StopReason
from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import StudyTerms, TrialProgress
from autoscaler.service.studies.stays import stays_of_study
from tests.controller.world import World

SECONDS = 10.0


def trials(world: World, count: int, budget_usd: str | None) -> list[str]:
    jobs = [world.submit(f"sweep-{number}", study="sweep") for number in range(count)]
    budget = None if budget_usd is None else Decimal(budget_usd)
    world.store.studies.state("sweep", StudyTerms(objective=Objective(budget_usd=budget)))
    for job in jobs:
        world.set_target(job, 1)
    return jobs


def spent(world: World) -> Decimal:
    alive = world.store.jobs.alive()
    return Spending(world.store).of_study("sweep", alive, world.clock.now())


def phases(world: World, jobs: list[str]) -> set[JobPhase]:
    return {world.store.jobs.get(job).phase for job in jobs}


def test_all_trials_end_before_the_budget_of_the_study_is_passed(world: World) -> None:
    jobs, other = trials(world, 2, "0.05"), world.submit("other")
    world.set_target(other, 1)
    rate = 0
    for _ in range(1000):
        world.tick(seconds=2.0)
        rate = max(rate, len([h for h in world.store.instances.alive() if h.job in jobs]))
        if phases(world, jobs) == {JobPhase.STOPPED}:
            break
    assert rate == 2
    assert phases(world, jobs) == {JobPhase.STOPPED}
    assert world.store.jobs.get(jobs[0]).stop_reason is StopReason.STUDY_BUDGET
    assert Decimal("0.03") < spent(world) <= Decimal("0.05")
    assert world.store.jobs.get(other).phase is JobPhase.RUNNING


def test_what_ended_trials_cost_counts(world: World) -> None:
    first, second = trials(world, 2, None)
    world.set_target(second, 0)
    world.tick(20, seconds=SECONDS)
    world.store.jobs.request_stop(first, world.clock.now())
    world.tick(10, seconds=SECONDS)
    assert world.store.jobs.get(first).phase is JobPhase.STOPPED
    cost = spent(world)
    assert cost > 0
    world.store.studies.state("sweep", StudyTerms(objective=Objective(budget_usd=cost)))
    world.tick(2, seconds=SECONDS)
    assert phases(world, [second]) == {JobPhase.STOPPED}


def test_forgotten_sums_of_a_study_are_read_again(world: World) -> None:
    (job,) = trials(world, 1, None)
    world.tick(20, seconds=SECONDS)
    world.store.jobs.request_stop(job, world.clock.now())
    world.tick(10, seconds=SECONDS)
    spending, now_seconds = Spending(world.store), world.clock.now()
    before_usd = spending.of_study("sweep", (), now_seconds)
    for studies in ({"sweep"}, set[str]()):
        spending.forget(studies)
        assert spending.of_study("sweep", (), now_seconds) == before_usd > 0


def test_a_study_leaves_an_epoch_before_its_money_is_gone(world: World) -> None:
    (job,) = trials(world, 1, "1000")
    world.tick(20, seconds=SECONDS)
    for progress, _ in enumerate(range(3), start=1):
        told = TrialProgress(job, float(progress), reports=((progress, 1.0),))
        held = world.policy.targets[job]
        world.store.studies.tell("sweep", [(told, held)], world.clock.now())
        world.tick(6, seconds=SECONDS)
    held_usd_per_second = world.store.instances.alive()[0].usd_per_hour / 3600
    left = spent(world) + held_usd_per_second * 50
    world.store.studies.state("sweep", StudyTerms(objective=Objective(budget_usd=left)))
    world.tick(1, seconds=SECONDS)  # 40 s are left, and an epoch takes 60
    assert world.store.jobs.get(job).phase is JobPhase.STOPPING


def test_what_each_trial_held_is_found_in_the_ledger(world: World) -> None:
    first, second = trials(world, 2, None)
    world.store.studies.tell("sweep", [(TrialProgress(first), None)], world.clock.now())
    world.tick(20, seconds=SECONDS)
    (stay,) = stays_of_study(world.store, "sweep")
    assert (stay.job, stay.devices, stay.to_seconds) == (first, 1, None)
    world.store.studies.tell("sweep", [(TrialProgress(second), None)], world.clock.now())
    world.store.jobs.request_stop(first, world.clock.now())
    world.tick(10, seconds=SECONDS)
    ended, running = sorted(stays_of_study(world.store, "sweep"), key=lambda each: each.job)
    assert (ended.job, running.job, running.to_seconds) == (first, second, None)
    assert ended.to_seconds is not None and ended.to_seconds > ended.from_seconds
    seconds = ended.to_seconds - ended.from_seconds
    assert float(ended.usd_per_hour) * seconds / 3600 < float(spent(world))


def test_a_trial_that_has_ended_is_added_up_once_though_its_instance_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.store.leases.take("sweep", "driver", world.clock.now(), 1000.0)
    first, second = trials(world, 2, None)
    world.set_target(second, 0)
    world.tick(6)
    (held,) = world.training(first)
    world.complete(held)
    world.set_target(second, 1)
    world.tick(6)
    assert [each.id for each in world.training(second)] == [held.id]
    spending, read = Spending(world.store), list[str | None]()
    lines = world.store.ledger
    entries = type(lines).entries
    monkeypatch.setattr(
        type(lines), "entries", lambda self, job=None: read.append(job) or entries(self, job)
    )
    before = spending.of_study("sweep", world.store.jobs.alive(), world.clock.now())
    assert sorted(filter(None, read)) == [first, second]
    read.clear()
    world.clock.advance(60.0)
    after = spending.of_study("sweep", world.store.jobs.alive(), world.clock.now())
    assert read == [second]
    assert after > before


def test_later_lines_of_an_ended_trial_count(world: World) -> None:
    """An instance that was taken for ended is listed again."""
    (job,) = trials(world, 1, None)
    world.tick(6)
    (held,) = world.training(job)
    world.cloud.unlisted = {held.cloud_id or ""}
    for _ in range(33):
        world.store.instances.record_node(held.id, InstancePhase.TRAINING, world.clock.now())
        world.tick(1, seconds=20.0, agents=False)
    world.store.jobs.request_stop(job, world.clock.now())
    world.tick(3)
    spending = Spending(world.store)
    before_usd = spending.of_study("sweep", (), world.clock.now())
    world.cloud.unlisted = set()
    world.tick(3, seconds=SECONDS)
    assert world.store.jobs.alive() == ()
    later_usd = spending.of_study("sweep", (), world.clock.now())
    assert later_usd == spent(world) > before_usd


def test_a_trial_that_began_and_ended_unseen_counts(world: World) -> None:
    (first,) = trials(world, 1, None)
    world.tick(6)
    spending = Spending(world.store)
    spending.of_study("sweep", world.store.jobs.alive(), world.clock.now())
    second = world.submit("sweep-1", study="sweep")
    world.set_target(second, 1)
    world.tick(6, seconds=SECONDS)
    for job in (first, second):
        world.store.jobs.request_stop(job, world.clock.now())
    world.tick(6, seconds=SECONDS)
    assert world.store.jobs.alive() == ()
    now_seconds = world.clock.now()
    assert spending.of_study("sweep", (), now_seconds) == spent(world)


def test_an_instance_that_waits_for_a_trial_counts_after_the_clock_was_set_back(
    world: World,
) -> None:
    world.store.leases.take("sweep", "driver", world.clock.now(), 10_000.0)
    (job,) = trials(world, 1, None)
    world.store.studies.state("sweep", StudyTerms(to_begin=1))
    world.tick(6)
    (held,) = world.training(job)
    world.complete(held)
    world.tick(1)
    assert world.store.instances.alive() and not world.store.jobs.alive()
    spending, now_seconds = Spending(world.store), world.clock.now()
    spending.of_study("sweep", (), now_seconds - 3600)
    assert spending.of_study("sweep", (), now_seconds) == spent(world) > 0


def test_a_study_whose_ledger_is_broken_is_in_trouble_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Keep its trials' instances, and guard the budget of another study as before."""
    broken = world.submit("broken-0", study="broken")
    world.store.studies.state("broken", StudyTerms(objective=Objective(budget_usd=Decimal(9))))
    world.set_target(broken, 1)
    own = trials(world, 1, "1000")
    world.tick(10, seconds=SECONDS)
    lines = type(world.store.ledger)
    entries = lines.entries

    def unreadable(self: object, job: str | None = None) -> object:
        if job == broken:
            raise LedgerError("lines contradict each other")
        return entries(self, job)

    with monkeypatch.context() as patched:
        patched.setattr(lines, "entries", unreadable)
        world.set_target(broken, 2)
        world.store.studies.state("sweep", StudyTerms(objective=Objective(budget_usd=Decimal(0))))
        world.tick(10, seconds=SECONDS)
        status = world.controller.status
        assert status.study_troubles == {"broken": "lines contradict each other"}
        assert status.trouble == "study broken: lines contradict each other"
        assert phases(world, own) == {JobPhase.STOPPED}
        assert len(world.training(broken)) == 1
        told = [each for each in caplog.records if "study broken" in each.getMessage()]
        assert len(told) == 2  # its budget and its record, each once
    world.tick(6, seconds=SECONDS)
    assert len(world.training(broken)) == 2
    assert world.controller.status.trouble is None
