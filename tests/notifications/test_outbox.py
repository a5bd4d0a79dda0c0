"""Notices and deliveries of a whole controller on a virtual clock."""

from __future__ import annotations

import threading
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.access import Owner, Person, Role
from autoscaler.domain.budget import Budget, BudgetPlan, BudgetScope, ScopeKind, month_name
from autoscaler.domain.errors import Conflict
from autoscaler.domain.job import JobPhase, StopReason
from autoscaler.domain.notice import DeliveryState, NoticeKind
from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import StudyTerms, TrialProgress
from autoscaler.notifications.delivery import (
    GIVE_UP_SECONDS,
    NOT_DELIVERED,
    Letterhead,
    TargetDeliveries,
    after_attempt,
)
from autoscaler.notifications.outbox import Notifications
from autoscaler.notifications.targets import Target
from autoscaler.store.memory.store import memory_store
from autoscaler.store.repositories.owners import OwnedKind
from autoscaler.store.store import Store
from tests.builders.waiting import wait_until
from tests.conformance.store_examples import NOW, add_job
from tests.conformance.store_notices import notice
from tests.controller.world import World
from tests.notifications.examples import ScriptedSender, refusal, sent_by, target

URL = "https://castor.example.org"


def deliveries(store: Store, clock: VirtualClock, of: Target) -> TargetDeliveries:
    return TargetDeliveries(of, store, Letterhead("deployment", URL), clock)


def notifications(world: World, *targets: Target) -> Notifications:
    status = world.controller.status
    fleet_usd = world.settings.fleet_usd
    return Notifications(world.store, status, targets, URL, world.clock, fleet_usd)


def texts(world: World) -> list[str]:
    return [entry.notice.text for entry in reversed(world.store.notices.latest())]


def kinds(world: World) -> list[NoticeKind]:
    return [entry.notice.key.kind for entry in reversed(world.store.notices.latest())]


def test_a_delivery_is_repeated_with_growing_pauses_until_it_is_accepted() -> None:
    store, clock = memory_store(), VirtualClock(NOW)
    ops = target("ops", refusal(), refusal(retry_after_seconds=60.0), None)
    store.notices.add(notice(), ["ops"])
    sender, stopped = deliveries(store, clock, ops), threading.Event()
    assert sender.send_due(stopped) == 5.0
    assert sender.send_due(stopped) == 5.0  # not due yet
    clock.advance(5.0)
    assert sender.send_due(stopped) == 30.0  # at least every 30 s
    (waiting,) = store.notices.waiting("ops")
    assert (waiting.attempts, waiting.next_seconds) == (2, NOW + 65.0)
    assert waiting.error == "example.org answered 500"
    clock.advance(60.0)
    sender.send_due(stopped)
    (done,) = store.notices.latest()
    assert (done.state, done.attempts, done.error) == (DeliveryState.DELIVERED, 3, None)
    (sent,) = sent_by(ops)
    assert sent.id == notice().id("deployment")
    assert sent.link == f"{URL}/jobs/digits.1"


def test_pauses_grow_to_an_hour_and_end_after_a_day() -> None:
    store = memory_store()
    store.notices.add(notice(), ["ops"])
    (delivery,) = store.notices.waiting("ops")
    pauses, now_seconds = [], NOW
    while delivery.state is DeliveryState.WAITING:
        delivery = after_attempt(delivery, refusal(), now_seconds)
        pauses.append(delivery.next_seconds - now_seconds)
        now_seconds = delivery.next_seconds
    assert pauses[:4] == [5.0, 10.0, 20.0, 40.0]
    assert set(pauses[10:]) == {3600.0}
    assert delivery.state is DeliveryState.GIVEN_UP
    assert now_seconds - NOW > GIVE_UP_SECONDS


def test_a_final_refusal_and_a_faulty_plug_in_are_recorded() -> None:
    store, clock = memory_store(), VirtualClock(NOW)
    add_job(store)
    gone, broken = target("gone", refusal(is_final=True)), target("broken", ValueError("oh"))
    store.notices.add(notice(), ["gone", "broken"])
    for of in (gone, broken):
        deliveries(store, clock, of).send_due(threading.Event())
    (event,) = store.events.latest("digits")
    assert event.kind == NOT_DELIVERED
    assert event.text == (
        "job.failed of digits to gone, given up after 1 attempts: example.org answered 500"
    )
    (waiting,) = store.notices.waiting("broken")
    assert waiting.error == "ValueError: oh"


def test_the_end_of_a_job_is_told_once_across_restarts(tmp_path: Path) -> None:
    world = World(tmp_path)
    ops = target()
    notifications(world, ops).look()
    job = world.submit(person="ada")
    world.set_target(job, 1)
    world.tick(5)
    told = notifications(world, ops)
    told.look()
    world.complete(world.training(job)[0])
    world.tick(5)
    assert world.store.jobs.get(job).phase is JobPhase.FINISHED
    told.look()
    told.look()
    world.restart()
    notifications(world, ops).look()  # of another process
    assert kinds(world) == [NoticeKind.FINISHED]
    (text,) = texts(world)
    assert text.startswith("job finished after ")
    assert " spent" in text


def test_what_ended_before_notices_were_on_is_not_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    job = world.submit()
    world.store.jobs.request_stop(job, world.clock.now())
    world.tick(3)
    assert world.store.jobs.get(job).phase is JobPhase.STOPPED
    world.clock.advance(1.0)
    notifications(world, target()).look()
    assert texts(world) == []


def test_what_ended_while_no_controller_ran_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    notifications(world, target()).look()
    job = world.submit()
    world.store.jobs.request_stop(job, world.clock.now())
    world.tick(3)
    notifications(world, target()).look()
    assert texts(world) == ["job was stopped after 2s, $0 spent: on request."]


def test_a_stall_and_a_deadline_and_a_leak(tmp_path: Path) -> None:
    world = World(tmp_path)
    told = notifications(world, target())
    deadline = Objective(deadline_seconds=world.clock.now() + 100.0)
    job = world.submit(objective=deadline)
    world.set_target(job, 1)
    world.tick(5)
    status = world.controller.status
    status.stalls = {job: "no step for 20 min"}
    status.strays = frozenset({"i-0123"})
    told.look()
    assert kinds(world) == [NoticeKind.STALLED, NoticeKind.LEAK]
    world.clock.advance(100.0)
    told.look()
    world.clock.advance(120.0)
    told.look()
    assert kinds(world)[2:] == [NoticeKind.DEADLINE]
    assert "has missed its deadline by 2m10s" in texts(world)[2]


def test_the_budget_of_the_deployment(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.settings = replace(world.settings, fleet_usd=Decimal("0.01"))
    world.restart()
    told = notifications(world, target())
    job = world.submit()
    world.set_target(job, 1)
    world.tick(5)
    while not kinds(world):
        world.clock.advance(30.0)
        told.look()
    assert kinds(world) == [NoticeKind.BUDGET]
    assert texts(world)[0].startswith("The budget of the deployment is nearly used up: $0.01 of")


def test_shared_budgets_of_a_month(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.people.put(Person("ada", Role.SUBMITTER, "nlp"))
    scopes = [
        BudgetScope(ScopeKind.PERSON, "ada"),
        BudgetScope(ScopeKind.TEAM, "nlp"),
        BudgetScope(ScopeKind.STUDY, "sweep"),
        BudgetScope(ScopeKind.FLEET),
    ]
    for scope in scopes:
        world.store.budgets.put(Budget(scope, month_usd=Decimal(50)))
    world.store.budgets.put(Budget(BudgetScope(ScopeKind.TEAM, "other"), hourly_usd=Decimal(5)))
    told = notifications(world, target())
    world.submit(person="ada", team="nlp")
    world.tick(5)
    for _ in range(3):  # the plan keeps within the limit, and no job is expected to need more
        world.controller.status.budget_plans = {
            str(scope): BudgetPlan(str(scope), planned_usd=50.0, wished_usd=50.0)
            for scope in scopes
        }
        world.clock.advance(90.0)
        told.look()
    assert texts(world) == []
    for _ in range(3):
        world.controller.status.budget_plans = {
            str(scope): BudgetPlan(str(scope), planned_usd=50.0, wished_usd=80.0)
            for scope in scopes
        }
        world.clock.advance(90.0)
        told.look()
    notices = [entry.notice for entry in world.store.notices.latest()]
    month = month_name(Budget(scopes[0]).month(world.clock.now()), "UTC")
    assert {(each.key.subject, each.person, each.team) for each in notices} == {
        (f"person ada {month}", "ada", "nlp"),
        (f"team nlp {month}", None, "nlp"),
        (f"study sweep {month}", "owner", None),
        (f"fleet {month}", None, None),
    }
    assert all("$80 needed for the whole month" in text for text in texts(world))


def test_shared_limits_in_all_and_by_the_hour(tmp_path: Path) -> None:
    world = World(tmp_path)
    team, fleet = BudgetScope(ScopeKind.TEAM, "nlp"), BudgetScope(ScopeKind.FLEET)
    told = notifications(world, target())
    world.set_target(world.submit(person="ada", team="nlp"), 1)
    world.tick(5)
    rate = sum(held.costing_usd_per_hour for held in world.store.instances.alive())
    world.store.budgets.put(Budget(fleet, hourly_usd=Decimal(rate) / Decimal("0.95")))
    world.store.budgets.put(Budget(team, total_usd=Decimal(100)))

    def subjects() -> list[str]:
        for _ in range(3):
            world.clock.advance(90.0)
            world.tick(1)
            told.look()
        return [entry.notice.key.subject for entry in reversed(world.store.notices.latest())]

    assert subjects() == ["fleet by the hour"]
    (standing,) = (each for each in world.controller.status.budgets if each.budget.scope == team)
    world.store.budgets.put(Budget(team, total_usd=standing.total_usd))
    seen = ["fleet by the hour", "team nlp in all, used up"]
    assert subjects() == subjects() == seen
    notice = world.store.notices.latest()[0].notice
    assert (notice.person, notice.team) == (None, "nlp")
    assert notice.text.endswith("until castor budget set team:nlp raises it.")


def test_the_first_hours_of_a_month_tell_nothing_without_a_plan(tmp_path: Path) -> None:
    world = World(tmp_path)
    fleet = Budget(BudgetScope(ScopeKind.FLEET), month_usd=Decimal(1))
    month = fleet.month(world.clock.now())
    world.clock.advance(month.end_seconds + 60.0 - world.clock.now())
    world.store.budgets.put(fleet)
    told = notifications(world, target())
    world.set_target(world.submit(), 1)
    world.tick(5)
    (standing,) = world.controller.status.budgets
    assert standing.month_usd > 0
    for _ in range(3):
        world.clock.advance(90.0)
        told.look()
    assert texts(world) == []


class ToldStudy:
    """Study whose driver comes and goes."""

    def __init__(self, directory: Path) -> None:
        self.world = World(directory)
        self.told = notifications(self.world, target())
        self.world.store.owners.claim(OwnedKind.STUDY, "sweep", Owner("ada", "nlp"))

    def begin_trial(self, name: str, best: float | None = None) -> str:
        """Have a driver run a trial; return its job."""
        store, now_seconds = self.world.store, self.world.clock.now()
        store.leases.take("sweep", "laptop", now_seconds, 600.0)
        trial = self.world.submit(name, study="sweep", person="ada", team="nlp")
        store.studies.state("sweep", StudyTerms(to_begin=0, best=best))
        store.studies.tell("sweep", [(TrialProgress(trial), None)], now_seconds)
        self.told.look()
        return trial

    def run_trial(self, name: str, best: float) -> None:
        """Run a trial to its result, and let its driver leave."""
        trial = self.begin_trial(name, best)
        self.stop(trial)
        self.told.look()  # the driver may begin another trial
        self.finish(trial)

    def stop(self, trial: str, reason: StopReason | None = None, cause: str | None = None) -> None:
        now_seconds = self.world.clock.now()
        self.world.store.jobs.set_phase(trial, JobPhase.STOPPING, now_seconds, cause, reason)
        self.world.tick(3)

    def finish(self, trial: str) -> None:
        """Store the result of a trial, and let its driver leave."""
        store, now_seconds = self.world.store, self.world.clock.now()
        store.studies.tell("sweep", [(TrialProgress(trial, has_ended=True), None)], now_seconds)
        store.leases.leave("sweep", "laptop")

    def notices(self) -> list[str]:
        """Look twice and return the texts of all notices."""
        self.told.look()
        self.told.look()
        latest = list(reversed(self.world.store.notices.latest()))
        assert {entry.notice.key.kind for entry in latest} <= {NoticeKind.STUDY}
        return [entry.notice.text for entry in latest]


def test_the_end_of_a_study_is_told_once_for_each_run(tmp_path: Path) -> None:
    study = ToldStudy(tmp_path)
    study.run_trial("one", 0.5)
    first = "Study sweep ended after 1 trial, best value 0.5, $0 spent."
    assert study.notices() == [first]
    notifications(study.world, target()).look()  # of another process
    assert study.notices() == [first]
    study.begin_trial("two")
    study.world.store.leases.leave("sweep", "laptop")  # the driver died, and goes on later
    assert study.notices() == [first]
    study.stop("two")
    study.finish("two")
    study.run_trial("three", 0.25)
    assert study.notices()[1:] == ["Study sweep ended after 3 trials, best value 0.25, $0 spent."]
    notice = study.world.store.notices.latest()[0].notice
    assert Letterhead("deployment", URL).message(notice).link == f"{URL}/studies/sweep"


def test_a_study_that_is_cut_off_or_stopped_is_told_each_time(tmp_path: Path) -> None:
    study = ToldStudy(tmp_path)
    leases = study.world.store.leases
    first, second = study.begin_trial("one", 0.5), study.begin_trial("two", 0.5)
    study.finish(first)
    leases.take("sweep", "laptop", study.world.clock.now(), 600.0)
    for trial in (first, second):
        study.stop(trial, StopReason.STUDY_BUDGET, "the budget of study sweep is used up")
    assert study.notices() == []  # its driver has not left yet
    leases.leave("sweep", "laptop")
    told = [
        "Study sweep was stopped with 1 trial without a result of 2, best value 0.5, $0 spent: "
        "the budget of study sweep is used up."
    ]
    assert study.notices() == told
    study.stop(study.begin_trial("two", 0.5))
    leases.leave("sweep", "laptop")
    told.append(
        "Study sweep was stopped with 1 trial without a result of 2, best value 0.5, $0 spent: "
        "on request."
    )
    assert study.notices() == told
    study.run_trial("two", 0.25)
    assert study.notices()[2:] == ["Study sweep ended after 2 trials, best value 0.25, $0 spent."]


def test_deliveries_to_removed_targets_are_given_up(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.store.notices.add(notice(), ["old"])
    told = notifications(world, target())
    told.start()
    try:
        wait_until(lambda: bool(world.store.events.latest()))
    finally:
        told.stop(5.0)
    (delivery,) = world.store.notices.latest()
    assert delivery.error == "castor serve has no target of this name any more"


def test_a_slow_target_delays_no_other_and_no_end(tmp_path: Path) -> None:
    world = World(tmp_path)
    slow, quick = target("slow"), target("quick")
    hold = threading.Event()
    assert isinstance(slow.notifier, ScriptedSender)
    slow.notifier.hold = hold
    told = notifications(world, slow, quick)
    told.start()
    try:
        sent = told.test("ada")
        wait_until(lambda: bool(sent_by(quick)))
        assert sent_by(quick)[0].notice == sent
        assert sent_by(slow) == []
        told.test("ada")
        wait_until(lambda: len(sent_by(quick)) == 2)
    finally:
        told.stop(0.1)
        hold.set()
    assert [entry.target for entry in world.store.notices.waiting("slow")] == ["slow", "slow"]


def test_a_test_needs_a_target(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(Conflict, match="--notify"):
        notifications(world).test("ada")
    notifications(world).start()  # no threads
