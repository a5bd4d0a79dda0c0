"""One guard decides for a job, a study and a fleet alike, to the last digit."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.controller.budgets.accounts import BudgetAccounts
from autoscaler.controller.budgets.guard import BudgetGuard, Budgets
from autoscaler.controller.budgets.spending import Spending
from autoscaler.domain.instance import by_job
from autoscaler.domain.job import JobPhase, JobRecord, JobSpec, StopReason
from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import StudyTerms
from autoscaler.store.memory.store import memory_store
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW, launch, offer
from tests.controller.world import World

USD = st.decimals("0", "100", places=12)


def guard_of(
    budget_usd: Decimal | None, spent_usd: Decimal, leaving_usd: Decimal, *jobs: JobRecord
) -> BudgetGuard:
    return BudgetGuard(
        budget_usd=budget_usd,
        jobs=jobs,
        spent_usd=lambda now_seconds: spent_usd,
        leaving_usd=lambda: leaving_usd,
        cause=lambda: "used up",
        stop_reason=StopReason.JOB_BUDGET,
    )


@given(spent_usd=USD, leaving_usd=USD, spare_usd=USD)
def test_a_budget_is_used_up_exactly_where_spending_and_leaving_reach_it(
    spent_usd: Decimal, leaving_usd: Decimal, spare_usd: Decimal
) -> None:
    guard = guard_of(spent_usd + leaving_usd + spare_usd, spent_usd, leaving_usd)
    assert guard.is_used_up(NOW) == (spare_usd == 0)
    assert guard.permits(leaving_usd, NOW) == (spare_usd > 0)


def test_tenths_of_a_dollar_are_exact() -> None:
    """Add decimals, because 0.1 + 0.7 is less than 0.8 in binary floating point."""
    assert 0.1 + 0.7 < 0.8
    assert guard_of(Decimal("0.8"), Decimal("0.1"), Decimal("0.7")).is_used_up(NOW)


def test_without_a_budget_everything_is_permitted() -> None:
    store = memory_store()
    job = store.jobs.add(JobSpec("job", ("true",)), NOW)
    guard = guard_of(None, Decimal(0), Decimal("1e12"), job)
    assert guard.permits(Decimal("1e12"), NOW) and not guard.is_used_up(NOW)
    guard.enforce(store, NOW)
    assert store.jobs.get(job.id).phase is JobPhase.PENDING


@given(
    price=st.decimals("0.01", "99.99", places=4),
    budget_usd=st.decimals("0.0001", "20", places=4),
    instances=st.integers(1, 3),
    held_seconds=st.floats(0.0, 1000.0),
)
def test_a_budget_ends_a_job_at_the_same_time_whatever_its_scope(
    price: Decimal, budget_usd: Decimal, instances: int, held_seconds: float
) -> None:
    store = memory_store()
    objective = Objective(budget_usd=budget_usd)
    job = store.jobs.add(JobSpec("s-0", ("true",), study="s", objective=objective), NOW)
    store.studies.state("s", StudyTerms(objective=objective))
    for _ in range(instances):
        launch(store, job.id, offer(usd_per_hour=str(price)))
    now_seconds = NOW + 1.0 + held_seconds
    held, jobs = store.instances.alive(), store.jobs.alive()
    budgets = Budgets(store, Spending(store), budget_usd, BudgetAccounts(store, 10.0))
    guards = (
        budgets.of_job(job, held),
        budgets.of_study("s", jobs, by_job(held)),
        budgets.of_fleet(jobs, held),
    )
    (is_used_up,) = {guard.is_used_up(now_seconds) for guard in guards}
    for guard in guards:
        guard.enforce(store, now_seconds)
    assert (store.jobs.get(job.id).phase is JobPhase.STOPPING) == is_used_up


def test_a_job_without_instances_is_not_ended_by_its_own_budget() -> None:
    store = memory_store()
    objective = Objective(budget_usd=Decimal(0))
    job = store.jobs.add(JobSpec("job", ("true",), objective=objective), NOW)
    budgets = Budgets(store, Spending(store), Decimal(0), BudgetAccounts(store, 10.0))
    budgets.of_job(job, ()).enforce(store, NOW)
    assert store.jobs.get(job.id).phase is JobPhase.PENDING
    budgets.of_fleet(store.jobs.alive(), ()).enforce(store, NOW)
    assert store.jobs.get(job.id).phase is JobPhase.STOPPING


def reads_of(store: Store, monkeypatch: pytest.MonkeyPatch) -> Counter[str | None]:
    """Count the reads of each job's ledger from now on."""
    read: Counter[str | None] = Counter()
    lines = type(store.ledger)
    entries = lines.entries

    def counted(self: object, job: str | None = None) -> object:
        read[job] += 1
        return entries(self, job)  # type: ignore[arg-type]

    monkeypatch.setattr(lines, "entries", counted)
    return read


def test_a_tick_reads_the_ledger_of_each_job_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guards of job and study, idle instances and the snapshot share what was read."""
    objective = Objective(budget_usd=Decimal(1000))
    world.store.leases.take("sweep", "driver", world.clock.now(), 1000.0)
    trials = [world.submit(f"sweep-{n}", study="sweep", objective=objective) for n in range(2)]
    world.store.studies.state("sweep", StudyTerms(objective=objective))
    for trial in trials:
        world.set_target(trial, 1)
    world.tick(6)
    (held,) = world.training(trials[0])
    world.complete(held)
    read = reads_of(world.store, monkeypatch)
    world.tick()
    assert read == dict.fromkeys(trials, 1)


def test_a_launch_is_checked_against_the_ledger_as_it_is_now() -> None:
    store = memory_store()
    job = store.jobs.add(JobSpec("job", ("true",)), NOW).id
    spending = Spending(store)
    fresh = spending.always_fresh()
    with spending.each_ledger_once():
        assert spending.of_job(job, NOW) == fresh.of_job(job, NOW) == 0
        launch(store, job)
        assert spending.of_job(job, NOW + 100.0) == 0
        assert fresh.of_job(job, NOW + 100.0) > 0
    assert spending.of_job(job, NOW + 100.0) > 0
