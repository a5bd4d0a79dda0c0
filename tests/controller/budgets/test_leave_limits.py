"""An agent and its controller agree on how long leaving may take."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autoscaler.controller.budgets.leave_limits import end_seconds, script_seconds
from autoscaler.domain.goodput import Batch, BatchBounds
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.report import (
    CheckpointStatus,
    ReportOrigin,
    StepObservation,
    TrainingReport,
)
from tests.controller.world import World

LEAST_SECONDS = 90.0
REPORT = TrainingReport(
    step=10,
    epoch=0,
    progress_examples=320.0,
    total_examples=None,
    batch=Batch(32, 32, 0),
    bounds=BatchBounds(32, 32, 32, False),
    replicas=1,
    devices=1,
    learning_rate=0.1,
    parameter_bytes=1000,
)


def _training(world: World, checkpoint_seconds: float, step_seconds: float) -> HeldInstance:
    """An instance of a job whose checkpoints and steps take so long."""
    job = world.submit()
    world.set_target(job, 1)
    world.tick(6)
    (held,) = world.training(job)
    report = replace(
        REPORT,
        checkpoint=CheckpointStatus(step=5, seconds=checkpoint_seconds),
        observations=(StepObservation("cpu-core", 1, 1, 32, 0, step_seconds, 0.0, 10),),
    )
    origin = ReportOrigin(held.id, 1, world.clock.now())
    world.store.reports.add(job, report, origin, world.clock.now())
    return held


@pytest.mark.parametrize(
    ("checkpoint_seconds", "step_seconds", "expected_seconds"),
    [
        (1.0, 0.1, LEAST_SECONDS),
        (50.0, 0.1, 210.0),
        (1.0, 40.0, 180.0),
        (1e9, 1e9, 3600.0),
    ],
)
def test_steps_and_checkpoints_that_take_long_may_take_long_again(
    world: World, checkpoint_seconds: float, step_seconds: float, expected_seconds: float
) -> None:
    held = _training(world, checkpoint_seconds, step_seconds)
    job = world.store.jobs.get(held.job)
    assert script_seconds(world.store, job, LEAST_SECONDS) == expected_seconds
    assert end_seconds(world.store, job, held, LEAST_SECONDS) == math.inf
    released = world.store.instances.release(held.id, world.clock.now())
    agent_ends_seconds = world.clock.now() + expected_seconds
    assert end_seconds(world.store, job, released, LEAST_SECONDS) > agent_ends_seconds
    reclaimed = replace(released, reclaim_seconds=world.clock.now() + 1000.0)
    assert end_seconds(world.store, job, reclaimed, LEAST_SECONDS) == reclaimed.reclaim_seconds


def test_an_instance_that_still_saves_is_not_ended(world: World) -> None:
    held = _training(world, checkpoint_seconds=60.0, step_seconds=1.0)
    world.store.jobs.request_stop(held.job, world.clock.now())
    for _ in range(25):
        world.store.instances.record_node(held.id, InstancePhase.DRAINING, world.clock.now())
        world.tick(seconds=10.0, agents=False)
    assert len(world.cloud.running()) == 1, "a checkpoint may take as long as it does"
    for _ in range(10):
        world.store.instances.record_node(held.id, InstancePhase.DRAINING, world.clock.now())
        world.tick(seconds=10.0, agents=False)
    assert world.cloud.running() == []
