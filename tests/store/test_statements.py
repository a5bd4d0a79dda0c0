"""Statements of a tick of a controller that leads its store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from autoscaler.domain.budget import Budget, BudgetScope, ScopeKind
from tests.controller import world
from tests.controller.world import World
from tests.store.led import led_store

MOST_STATEMENTS = 40
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


def statements_of_a_tick(directory: Path, template: Path, jobs: int) -> int:
    """Return the statements of a tick in which nothing changes."""
    directory.mkdir()
    deployment = World(directory, devices=2 * jobs, template=template)
    deployment.store.budgets.put(Budget(BudgetScope(ScopeKind.FLEET), Decimal("1000")))
    for number in range(jobs):
        deployment.set_target(deployment.submit(f"job-{number}"), 2)
    deployment.tick(4)
    deployment.clock.advance(BEGIN_SECONDS)
    with counted() as statements:
        deployment.controller.tick(deployment.clock.now())
    assert len(deployment.training("job-0")) == 2
    deployment.store.close()
    return len(statements)


def test_a_tick_sends_as_many_statements_for_many_jobs_as_for_few(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "open_store", led_store)
    few = statements_of_a_tick(tmp_path / "few", template, 2)
    many = statements_of_a_tick(tmp_path / "many", template, 12)
    assert few == many <= MOST_STATEMENTS


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
