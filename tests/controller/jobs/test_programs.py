"""Memories of programs: measurements of one job in the plans of the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.domain.goodput import (
    LocalityParameters,
    PipelineParameters,
    ThroughputParameters,
)
from autoscaler.domain.job import ParallelismSpec
from autoscaler.domain.plan import Plan
from autoscaler.domain.report import ReportOrigin, StepObservation
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from tests.conformance.store_examples import report
from tests.controller.world import World

STEPS = StepObservation("cpu-core", 1, 1, 64, 0, 0.5, 0.0, 100)


def run_first(world: World, **spec: object) -> None:
    """A job that reports what it measured, and is stopped."""
    job = world.submit("first", **spec)
    world.set_target(job, 1)
    world.tick(4)
    (held,) = world.training(job)
    told = report(observations=(STEPS,), total_examples=1e6)
    origin = ReportOrigin(held.id, 1, world.clock.now())
    assert world.store.reports.add(job, told, origin, world.clock.now())
    world.tick()
    world.store.jobs.request_stop(job, world.clock.now())
    world.tick(4)


def seen(world: World, job: str) -> JobSnapshot:
    """The job as the policy sees it at the next tick."""
    snapshots: list[Snapshot] = []
    plan = world.policy.plan

    def watched(snapshot: Snapshot) -> Plan:
        snapshots.append(snapshot)
        return plan(snapshot)

    world.policy.plan = watched  # type: ignore[method-assign]
    world.tick()
    (found,) = (each for each in snapshots[-1].jobs if each.id == job)
    return found


def measured(job: JobSnapshot) -> frozenset[tuple[int, int]]:
    return frozenset(size for model in job.models.values() for size in model.measured)


@pytest.mark.parametrize(
    ("parallelism", "parameters"),
    [
        (ParallelismSpec(), ThroughputParameters),
        (ParallelismSpec(pipeline=4, microbatches=16), PipelineParameters),
        (ParallelismSpec(near_instances=2), LocalityParameters),
    ],
)
def test_a_job_is_judged_by_the_model_of_its_parallelism(
    tmp_path: Path, parallelism: ParallelismSpec, parameters: type
) -> None:
    world = World(tmp_path)
    job = world.submit(parallelism=parallelism)
    models = seen(world, job).models
    assert models
    assert {type(model.point) for model in models.values()} == {parameters}
    world.restart()
    assert seen(world, job).models == models
    assert world.store.measurements.models(job) == models


def test_the_next_job_of_a_program_begins_with_what_it_taught(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_first(world, program="digits")
    world.restart()
    job = seen(world, world.submit("second", program="digits"))
    assert measured(job) == {(1, 1)}
    assert (job.remaining_examples, job.batch) == (1e6, report().bounds)
    assert job.noise is not None and job.noise_curve is not None
    assert job.switching.start_seconds["small"] > 0


def test_a_job_of_another_program_begins_with_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_first(world, program="digits")
    job = seen(world, world.submit("second"))
    assert not measured(job)
    assert job.noise_curve is None


def test_a_job_laid_out_otherwise_begins_with_nothing_and_the_same_layout_is_remembered(
    tmp_path: Path,
) -> None:
    stages = ParallelismSpec(pipeline=4, microbatches=16)
    world = World(tmp_path)
    run_first(world, program="digits")
    assert not measured(seen(world, world.submit("staged", program="digits", parallelism=stages)))
    near = ParallelismSpec(near_instances=2)
    assert measured(seen(world, world.submit("near", program="digits", parallelism=near)))
    (tmp_path / "staged").mkdir()
    staged = World(tmp_path / "staged")
    run_first(staged, program="digits", parallelism=stages)
    assert not measured(seen(staged, staged.submit("second", program="digits")))
    assert measured(seen(staged, staged.submit("third", program="digits", parallelism=stages)))


def test_jobs_of_one_name_run_one_program_until_it_is_forgotten(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_first(world)
    job = world.submit("first")
    assert measured(seen(world, job)) == {(1, 1)}
    assert world.store.programs.forget("first")
    assert not measured(seen(world, job))


def test_a_job_that_tells_of_another_model_is_not_told_of_this_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_first(world, program="digits")
    job = world.submit("second", program="digits")
    world.set_target(job, 1)
    world.tick(4)
    (held,) = world.training(job)
    told = report(observations=(), parameter_bytes=1_000)
    origin = ReportOrigin(held.id, 1, world.clock.now())
    world.store.reports.add(job, told, origin, world.clock.now())
    assert not measured(seen(world, job))
