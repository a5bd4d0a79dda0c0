"""A deployment never costs more than its owner allows."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.job import JobPhase
from autoscaler.domain.objective import Objective
from autoscaler.ledger.ledger import Ledger
from tests.controller.world import World

BUDGET = Decimal("0.06")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, ControllerSettings(replan_seconds=0.0, fleet_usd=BUDGET))


def total(world: World) -> Decimal:
    return Ledger(world.store.ledger.entries()).total(world.clock.now())


def until_all_have_ended(world: World) -> None:
    for _ in range(2000):
        world.tick(seconds=2.0)
        if not world.store.jobs.alive():
            return
    raise AssertionError("they never end")


def test_all_jobs_end_before_the_budget_is_passed_and_none_begins_after(world: World) -> None:
    jobs = [world.submit(name) for name in ("one", "two")]
    for job in jobs:
        world.set_target(job, 2)
    until_all_have_ended(world)
    assert {world.store.jobs.get(job).phase for job in jobs} == {JobPhase.STOPPED}
    assert "--fleet-usd" in (world.store.jobs.get(jobs[0]).cause or "")
    assert BUDGET / 2 < total(world) <= BUDGET
    before = total(world)
    for number in range(30):
        late = world.submit(f"late-{number}")
        world.set_target(late, 1)
        until_all_have_ended(world)
    assert total(world) <= BUDGET
    assert total(world) - before < BUDGET / 4


def test_a_restart_does_not_forget_what_was_spent(world: World) -> None:
    job = world.submit()
    world.set_target(job, 2)
    for _ in range(40):
        world.tick(seconds=2.0)
        world.restart()
        if not world.store.jobs.alive():
            break
        world.set_target(job, 2)
    until_all_have_ended(world)
    assert total(world) <= BUDGET


def test_a_default_budget_ends_a_job_and_does_not_make_it_spend(tmp_path: Path) -> None:
    world = World(tmp_path, ControllerSettings(replan_seconds=0.0))
    job = world.submit(objective=Objective(cap_usd=Decimal("0.06")))
    world.set_target(job, 2)
    until_all_have_ended(world)
    assert world.store.jobs.get(job).phase is JobPhase.STOPPED
    assert "the default of this deployment for jobs without a budget" in (
        world.store.jobs.get(job).cause or ""
    )
    assert total(world) <= Decimal("0.06")
    assert Objective(cap_usd=Decimal(50)).budget_usd is None, "no plan aims to use it up"
