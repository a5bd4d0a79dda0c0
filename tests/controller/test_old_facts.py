"""Deletion of old facts by the control loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.job import JobPhase
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.repositories.events import Event
from tests.controller.world import World

KEEP_SECONDS = 2 * 3600.0


@pytest.fixture
def world(tmp_path: Path, template: Path) -> World:
    settings = ControllerSettings(
        orphan_seconds=10.0, replan_seconds=0.0, keep_seconds=KEEP_SECONDS
    )
    return World(tmp_path, settings, template=template)


def end_job(world: World) -> str:
    """Let a job train on an instance, and stop it."""
    job = world.submit("old")
    world.set_target(job, 1)
    world.tick(6)
    world.store.jobs.request_stop(job, world.clock.now())
    world.tick(6)
    assert world.store.jobs.get(job).phase is JobPhase.STOPPED
    return job


def test_what_is_old_is_deleted_and_bills_stay(world: World) -> None:
    job = end_job(world)
    (held,) = world.store.instances.of_job(job, include_ended=True)
    paid_usd = Ledger(world.store.ledger.entries()).total(world.clock.now())
    assert world.store.journal.decisions(job)
    assert len(world.store.intents.of_instance(held.id)) == 2
    world.tick(1, seconds=3600.0)
    assert world.store.journal.decisions(job), "it is not old yet"
    world.tick(4, seconds=3600.0)
    assert world.store.journal.decisions(job) == ()
    assert world.store.events.latest(job) == ()
    assert world.store.intents.of_instance(held.id) == ()
    assert world.store.jobs.get(job).phase is JobPhase.STOPPED
    assert world.store.instances.get(held.id) == held
    assert Ledger(world.store.ledger.entries()).total(world.clock.now()) == paid_usd > 0


def test_the_loop_forgets_when_it_first_looked_at_what_has_ended(world: World) -> None:
    end_job(world)
    times = world.controller._time.steady
    assert times._corrections
    world.tick(3, seconds=3600.0)
    assert not times._corrections


def test_a_tick_deletes_few_rows_and_the_next_ones_go_on(world: World) -> None:
    for number in range(2500):
        world.store.events.add(Event(world.clock.now(), "test", str(number)))
    world.clock.advance(2 * KEEP_SECONDS)
    left = []
    for _ in range(4):
        world.tick()
        left.append(len(world.store.events.latest(limit=9999)))
    assert [count - left[-1] for count in left] == [1500, 500, 0, 0]


def test_the_loop_forgets_what_it_recorded_of_ended_jobs(world: World) -> None:
    end_job(world)
    remembered = world.controller._reported
    assert set(remembered) == {"old"}
    world.tick(3, seconds=3600.0)
    assert world.controller._reported == {}
