"""Rows of the audit log for what the controller spends by itself."""

from __future__ import annotations

import pytest

from autoscaler.controller.act.intents import LAUNCH_ACTION
from autoscaler.domain.access import CONTROLLER
from autoscaler.domain.errors import InsufficientCapacity, Throttled, Unavailable
from autoscaler.domain.instance import CloudInstance, LaunchRequest
from tests.controller.world import World


def launches(world: World) -> list[tuple[str, str]]:
    """Return instance and text of all rows, the earliest first."""
    rows = world.store.audit.page()
    assert {(row.person, row.action) for row in rows} <= {(CONTROLLER, LAUNCH_ACTION)}
    return [(row.subject, row.after) for row in reversed(rows)]


def fail_next(world: World, monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
    """Let the next launches of the cloud fail with these errors, in order."""
    waiting, launch = list(errors), world.cloud.launch

    def fail_first(request: LaunchRequest) -> CloudInstance:
        if waiting:
            raise waiting.pop(0)
        return launch(request)

    monkeypatch.setattr(world.cloud, "launch", fail_first)


def test_each_launch_that_is_called_has_a_row_with_price_and_reason(world: World) -> None:
    job = world.submit()
    world.set_target(job, 2)
    world.tick(3)
    held = world.store.instances.of_job(job)
    (entry,) = world.store.journal.decisions(job, limit=1)
    expected = [
        (
            instance.id,
            f"{instance.offer} at ${instance.usd_per_hour}/h: "
            f"{entry.decision.ground or 'no reason code'}",
        )
        for instance in held
    ]
    assert sorted(launches(world)) == sorted(expected) and len(expected) == 2


def test_a_launch_that_is_called_again_has_one_row(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.submit()
    world.set_target(job, 1)
    fail_next(world, monkeypatch, Throttled("slow down", 1.0), Unavailable("gone"))
    world.tick(6, seconds=10.0)
    assert len(world.store.instances.of_job(job)) == 1
    assert [subject for subject, _ in launches(world)] == ["job-0-1"]


def test_a_launch_that_is_refused_has_a_row_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.submit()
    world.set_target(job, 1)
    fail_next(world, monkeypatch, InsufficientCapacity("none left"))
    world.tick(1)
    assert [subject for subject, _ in launches(world)][:1] == ["job-0-1"]


def test_a_launch_that_is_never_called_has_none(world: World) -> None:
    job = world.submit()
    world.store.jobs.request_stop(job, world.clock.now())
    world.set_target(job, 1)
    world.tick(2)
    assert launches(world) == []
