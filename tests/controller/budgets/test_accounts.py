"""Accounts of shared budgets: sums from new lines, pauses at a limit, months and launches."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from autoscaler.controller.budgets.accounts import BudgetAccounts
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.budget import Budget, BudgetBasis, BudgetScope, ScopeKind, month_of
from autoscaler.domain.instance import Desired
from autoscaler.domain.job import JobPhase
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.store import Store
from tests.controller.world import World

NLP, FLEET = BudgetScope(ScopeKind.TEAM, "nlp"), BudgetScope(ScopeKind.FLEET)
ADA = BudgetScope(ScopeKind.PERSON, "ada")
SETTINGS = ControllerSettings(orphan_seconds=10.0, replan_seconds=0.0)
BIG = Decimal("1000")


def spent(store: Store, scope: BudgetScope, since_seconds: float, now_seconds: float) -> Decimal:
    """Return the cost of a scope's jobs from the whole ledger."""
    owners = {job.id: job.spec.owner for job in store.jobs.all()}
    return sum(
        (
            usd
            for bill in Ledger(store.ledger.entries()).bills
            for job, usd in bill.usd_by_job(since_seconds, now_seconds).items()
            if scope.covers(owners[job], None)
        ),
        Decimal(0),
    )


def in_month(world: World, day: int, hour: int = 0) -> None:
    """Set the clock of a world to a time in November 2026."""
    at_seconds = datetime(2026, 11, day, hour, tzinfo=UTC).timestamp()
    world.clock.advance(at_seconds - world.clock.now())


def test_sums_from_new_lines_are_those_of_the_whole_ledger(tmp_path: Path) -> None:
    world = World(tmp_path, SETTINGS)
    in_month(world, 2)
    for scope in (NLP, ADA, FLEET):
        world.store.budgets.put(Budget(scope, BIG, BIG))
    world.submit("first", person="ada", team="nlp")
    world.submit("second", person="bob", team="nlp")
    world.submit("third", person="eve")
    sizes = [(2, 1, 1), (1, 1, 1), (0, 2, 1), (1, 0, 0), (0, 0, 0)]
    for first, second, third in sizes:
        for job, size in (("first", first), ("second", second), ("third", third)):
            world.set_target(job, size)
        world.tick(5, seconds=40.0)
        now_seconds = world.clock.now()
        month = month_of(now_seconds, "UTC")
        for standing in world.controller.budget_standings(now_seconds):
            scope = standing.budget.scope
            total = spent(world.store, scope, float("-inf"), now_seconds)
            assert abs(standing.total_usd - total) <= Decimal("0.0005"), "a second of an instance"
            assert standing.month_usd == standing.total_usd
            assert spent(world.store, scope, month.start_seconds, now_seconds) == total
    fresh = BudgetAccounts(world.store, 0.0)
    now_seconds = world.clock.now()
    jobs, held = world.store.jobs.alive(), world.store.instances.alive()
    rebuilt = fresh.standings(jobs, held, now_seconds)
    kept = world.controller.budget_standings(now_seconds)
    assert [standing.total_usd for standing in rebuilt] == [each.total_usd for each in kept]
    assert rebuilt[0].total_usd > 0


def test_a_used_up_month_pauses_its_jobs_until_the_next_one(tmp_path: Path) -> None:
    world = World(tmp_path, SETTINGS)
    in_month(world, 30, 23)
    limit = Decimal("0.06")
    world.store.budgets.put(Budget(NLP, limit))
    job = world.submit("job", person="ada", team="nlp")
    other = world.submit("other", person="eve")
    world.set_target(job, 2)
    world.set_target(other, 1)
    world.tick(4)
    assert len(world.training(job)) == 2
    world.tick(150, seconds=10.0)
    assert world.store.instances.of_job(job) == ()
    assert world.store.jobs.get(job).phase in (JobPhase.PENDING, JobPhase.RUNNING), "it waits"
    assert len(world.training(other)) == 1
    (standing,) = world.controller.status.budgets
    assert standing.used_up is not None and standing.used_up[0] is BudgetBasis.MONTH
    assert Decimal("0.7") * limit < standing.month_usd <= limit
    reason = world.store.journal.decisions(job, 1)[0].decision.reason
    assert "of team nlp of $0.06 for 2026-11 is used up: waits until 2026-12-01" in reason
    world.clock.advance(2400.0)
    world.tick(4)
    assert len(world.training(job)) == 2, "a new month"
    assert world.controller.status.budgets[0].month_usd < limit


def test_a_raised_limit_lets_jobs_go_on_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, SETTINGS)
    in_month(world, 3)
    world.store.budgets.put(Budget(FLEET, total_usd=Decimal("0.06")))
    job = world.submit("job")
    world.set_target(job, 2)
    world.tick(150, seconds=10.0)
    assert world.store.instances.of_job(job) == ()
    world.store.budgets.put(Budget(FLEET, total_usd=Decimal("1.005")))
    world.tick(4)
    assert len(world.training(job)) == 2


def test_an_hourly_limit_holds_for_any_policy_and_at_each_launch(tmp_path: Path) -> None:
    world = World(tmp_path, SETTINGS)
    in_month(world, 3)
    world.store.budgets.put(Budget(NLP, hourly_usd=Decimal("0.30")))
    jobs = [world.submit(name, person="ada", team="nlp") for name in ("one", "two")]
    for job in jobs:
        world.set_target(job, 2)
    for _ in range(10):
        world.tick()
        held = [
            instance
            for instance in world.store.instances.alive()
            if instance.desired is Desired.PRESENT
        ]
        assert sum(instance.costing_usd_per_hour for instance in held) <= Decimal("0.30")
    assert [len(world.training(job)) for job in jobs] == [2, 1]


def test_nothing_is_read_where_there_is_no_budget(tmp_path: Path) -> None:
    world = World(tmp_path, SETTINGS)
    job = world.submit("job")
    world.set_target(job, 1)
    world.tick(4)
    assert world.controller.budget_standings(world.clock.now()) == ()
    assert world.controller.status.budgets == ()
