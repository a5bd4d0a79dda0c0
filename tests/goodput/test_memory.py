from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from autoscaler.domain.goodput import BatchBounds, NoiseCurve
from autoscaler.domain.job import ParallelismSpec
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.report import MemoryPeak, StepObservation
from autoscaler.goodput.memory import (
    MAXIMUM_CONFIGURATIONS,
    JobMeasurements,
    is_laid_out_as,
    is_of,
    learnt,
    noise_at_start,
    thinned,
    with_memory,
)

CURVE = NoiseCurve((10.0, 100.0), (50.0, 500.0))
LESSON = JobMeasurements(
    job="first",
    bounds=BatchBounds(32, 512, 64, True),
    parameter_bytes=1_000_000,
    total_examples=1e6,
    observations=(),
    noise=CURVE,
    start_seconds={"small": 30.0},
)


def step(devices: int, seconds: float, kind: str = "T4") -> StepObservation:
    return StepObservation(kind, 1, devices, 32, 0, seconds, 0.0, 10)


def taught(observations: Sequence[StepObservation], **changes: object) -> ProgramMemory:
    return learnt(None, "p", replace(LESSON, observations=observations, **changes), 1.0)


def test_the_first_lesson_is_all_that_is_known() -> None:
    memory = taught([step(1, 0.5)])
    assert (memory.jobs, memory.recent_jobs) == (1, ("first",))
    assert memory.observations == (step(1, 0.5),)
    assert (memory.noise, memory.start_seconds) == (CURVE, {"small": 30.0})


def test_lessons_add_up_and_the_last_of_a_configuration_counts() -> None:
    first = taught([step(1, 0.5), step(2, 0.3)])
    lesson = replace(
        LESSON,
        job="second",
        observations=[step(1, 0.55), step(4, 0.2)],
        start_seconds={"large": 60.0},
    )
    both = learnt(first, "p", lesson, 2.0)
    assert set(both.observations) == {step(1, 0.55), step(2, 0.3), step(4, 0.2)}
    assert both.start_seconds == {"small": 30.0, "large": 60.0}
    assert (both.jobs, both.updated_seconds) == (2, 2.0)
    assert both.recent_jobs == ("second", "first")


def test_a_lesson_of_a_job_laid_out_otherwise_takes_the_place_of_what_is_known() -> None:
    known = taught([step(1, 0.5)])
    stages = ParallelismSpec(pipeline=2, microbatches=8)
    lesson = replace(LESSON, job="second", observations=[step(2, 0.3)], parallelism=stages)
    other = learnt(known, "p", lesson, 2.0)
    assert (other.jobs, other.observations) == (1, (step(2, 0.3),))
    assert is_laid_out_as(other, stages) and not is_laid_out_as(other, ParallelismSpec())
    shard = ParallelismSpec(shard=4)
    sharded = learnt(other, "p", replace(lesson, parallelism=shard), 3.0)
    assert is_laid_out_as(sharded, shard)
    assert not is_laid_out_as(sharded, ParallelismSpec(shard=8))
    near = replace(lesson, parallelism=ParallelismSpec(near_instances=2))
    assert learnt(known, "p", near, 2.0).jobs == 2


def test_the_latest_peaks_of_memory_are_kept_by_examples_and_kind() -> None:
    early = replace(LESSON, peaks=(MemoryPeak("t4", 8, 100), MemoryPeak("t4", 16, 200)))
    late = replace(LESSON, job="second", peaks=(MemoryPeak("t4", 16, 220),))
    known = learnt(learnt(None, "p", early, 1.0), "p", late, 2.0)
    assert known.peaks == (MemoryPeak("t4", 8, 100), MemoryPeak("t4", 16, 220))


def test_what_was_remembered_before_layouts_were_is_of_devices_that_are_replicas() -> None:
    adapter = TypeAdapter(ProgramMemory)
    written = adapter.dump_python(taught([step(1, 0.5)]), mode="json")
    del written["parallelism"]
    assert is_laid_out_as(adapter.validate_python(written), ParallelismSpec())


def test_a_job_counts_once_however_often_it_teaches() -> None:
    memory = taught([step(1, 0.5)])
    for job in ("second", "first", "second", "second"):
        memory = learnt(memory, "p", replace(LESSON, job=job, observations=[step(1, 0.5)]), 2.0)
    assert (memory.jobs, memory.recent_jobs) == (2, ("second", "first"))


@pytest.mark.parametrize(
    "changes",
    [{"parameter_bytes": 2_000_000}, {"bounds": BatchBounds(64, 512, 64, True)}],
)
def test_another_fingerprint_starts_anew(changes: dict[str, object]) -> None:
    first = taught([step(1, 0.5), step(2, 0.3)])
    other = replace(LESSON, job="second", observations=[step(4, 0.2)], **changes)
    assert learnt(first, "p", other, 2.0).observations == (step(4, 0.2),)
    assert not is_of(first, other.bounds.initial, other.parameter_bytes)
    assert is_of(first, 32, 1_005_000)


def test_contradicting_step_times_take_the_place_of_all() -> None:
    first = taught([step(1, 0.5), step(2, 0.3), step(4, 0.2)])
    twice_as_fast = replace(LESSON, observations=[step(1, 0.25)])
    assert learnt(first, "p", twice_as_fast, 2.0).observations == (step(1, 0.25),)


def test_a_curve_is_kept_until_another_has_come_as_far() -> None:
    first = taught([step(1, 0.5)])
    begun = replace(LESSON, noise=NoiseCurve((10.0,), (60.0,)))
    assert learnt(first, "p", begun, 2.0).noise == CURVE
    whole = replace(LESSON, noise=NoiseCurve((10.0, 99.0), (60.0, 400.0)))
    assert learnt(first, "p", whole, 2.0).noise == whole.noise
    assert learnt(first, "p", replace(LESSON, noise=None), 2.0).noise == CURVE


def test_only_so_many_configurations_are_kept() -> None:
    first = taught([step(devices, 0.5) for devices in range(1, MAXIMUM_CONFIGURATIONS + 1)])
    more = learnt(first, "p", replace(LESSON, observations=[step(1000, 0.1)]), 2.0)
    assert len(more.observations) == MAXIMUM_CONFIGURATIONS
    assert more.observations[0] == step(1000, 0.1)


def test_own_step_times_come_before_those_remembered() -> None:
    memory = taught([step(1, 0.5), step(2, 0.3)])
    assert with_memory([step(1, 0.6)], memory) == (step(1, 0.6), step(2, 0.3))
    assert with_memory([step(1, 0.6)], None) == (step(1, 0.6),)


def test_the_first_noise_scale_stands_until_it_is_measured() -> None:
    noise = noise_at_start(taught([step(1, 0.5)]))
    assert noise is not None
    assert noise.examples == pytest.approx(50.0)
    assert noise_at_start(taught([step(1, 0.5)], noise=None)) is None


def test_a_thinned_curve_keeps_its_ends() -> None:
    points = tuple(float(at) for at in range(1, 301))
    curve = thinned(NoiseCurve(points, tuple(2 * at for at in points)))
    assert curve is not None
    assert len(curve.progress_examples) <= 48
    assert (curve.progress_examples[0], curve.progress_examples[-1]) == (1.0, 300.0)
    assert curve.noise_examples == pytest.approx([2 * at for at in curve.progress_examples])


def test_what_is_remembered_of_a_size_that_has_changed_is_of_an_earlier_era() -> None:
    other = replace(step(1, 0.9), device_batch=64)
    memory = taught([step(1, 0.5), other, step(2, 0.3), step(4, 0.2), step(8, 0.1)])
    own = [step(1, 1.5), step(2, 0.3), step(4, 0.2)]
    earlier = replace(other, era=-1)
    for _ in range(3):
        assert with_memory(own, memory) == (*own, earlier, step(8, 0.1))
        memory = learnt(memory, "p", replace(LESSON, observations=own), 2.0)
        assert set(memory.observations) == {*own, earlier, step(8, 0.1)}


def test_a_single_report_does_not_replace_what_is_remembered() -> None:
    memory = taught([step(1, 0.5), step(2, 0.3)])
    slow = replace(step(1, 5.0), is_settled=False)
    assert with_memory([slow], memory) == (step(1, 0.5), step(2, 0.3))
    after = learnt(memory, "p", replace(LESSON, observations=[slow]), 2.0)
    assert set(after.observations) == {step(1, 0.5), step(2, 0.3)}
    close = replace(step(1, 0.55), is_settled=False)
    assert with_memory([close], memory) == (close, step(2, 0.3))
