"""Statements of a tick of a controller that leads its store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.pool import Pool

from autoscaler.domain.budget import Budget, BudgetScope, ScopeKind
from tests.controller import world
from tests.controller.cloud import QuickCloud
from tests.controller.world import World
from tests.store.led import led_store

MOST_STATEMENTS = 40
MOST_OF_A_FIRST_LAUNCH = 70
MOST_OF_A_FIRST_TICK = 100
BEGIN_SECONDS = 2.0


@contextmanager
def counted() -> Iterator[list[str]]:
    """Yield the statements that are sent to databases meanwhile."""
    statements: list[str] = []

    def count(*arguments: object) -> None:
        statements.append(str(arguments[2]))

    event.listen(Engine, "before_cursor_execute", count)
    yield statements
    event.remove(Engine, "before_cursor_execute", count)


@pytest.fixture
def unsynced() -> Iterator[None]:
    """Let SQLite leave out the sync of each commit, which takes most of the time of a test."""

    def switch_off(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    event.listen(Pool, "checkout", switch_off)
    yield
    event.remove(Pool, "checkout", switch_off)


def trained_deployment(directory: Path, template: Path, jobs: int) -> World:
    """Return a deployment whose jobs train on one instance each."""
    directory.mkdir()
    deployment = World(directory, devices=2 * jobs, template=template)
    deployment.store.budgets.put(Budget(BudgetScope(ScopeKind.FLEET), Decimal("1000")))
    for number in range(jobs):
        deployment.set_target(deployment.submit(f"job-{number}"), 1)
    deployment.tick(4)
    return deployment


def statements_of_a_tick(deployment: World) -> int:
    """Return the statements of the next tick."""
    deployment.clock.advance(BEGIN_SECONDS)
    with counted() as statements:
        deployment.controller.tick(deployment.clock.now())
    return len(statements)


def statements_of_ticks(directory: Path, template: Path, jobs: int) -> tuple[int, ...]:
    """Return the statements of four ticks.

    Nothing changes in the first; in the second a plan with one more instance is stored, and the
    instance launched; in the third this is the first instance of a new job. The last one is the
    first of a controller that has just started.
    """
    deployment = trained_deployment(directory, template, jobs)
    quiet = statements_of_a_tick(deployment)
    grown = 0
    for instances in (2, 3):  # the first of these plans has all jobs, the next what has changed
        deployment.set_target("job-0", instances)
        grown = statements_of_a_tick(deployment)
        assert len(deployment.store.instances.of_job("job-0")) == instances
    deployment.set_target(deployment.submit("new"), 1)
    first_launch = statements_of_a_tick(deployment)
    assert len(deployment.store.instances.of_job("new")) == 1
    deployment.store.close()
    deployment.restart()
    first_tick = statements_of_a_tick(deployment)
    assert len(deployment.store.instances.alive()) == jobs + 3
    deployment.store.close()
    return quiet, grown, first_launch, first_tick


@pytest.mark.usefixtures("unsynced")
def test_a_tick_sends_as_many_statements_for_many_jobs_as_for_few(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "open_store", led_store)
    monkeypatch.setattr(world, "FileCloud", QuickCloud)
    few = statements_of_ticks(tmp_path / "few", template, 10)
    many = statements_of_ticks(tmp_path / "many", template, 200)
    quiet, grown, first_launch, first_tick = few
    assert few == many
    assert quiet <= grown <= MOST_STATEMENTS
    assert first_launch <= MOST_OF_A_FIRST_LAUNCH
    assert first_tick <= MOST_OF_A_FIRST_TICK


def test_one_that_does_not_lead_reads_what_another_has_written(
    tmp_path: Path, template: Path
) -> None:
    deployment = World(tmp_path, template=template)
    leader = led_store(f"sqlite:///{tmp_path / 'castor.db'}")
    job = deployment.submit()
    assert [alive.id for alive in leader.jobs.alive()] == [job]
    leader.jobs.set_lighthouse(job, "http://lighthouse")
    assert leader.jobs.get(job).lighthouse == "http://lighthouse"
    assert deployment.store.jobs.get(job).lighthouse == "http://lighthouse"
    leader.close()
