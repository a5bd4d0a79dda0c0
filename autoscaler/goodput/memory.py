"""What jobs of one program teach the next: their step times, their noise curve, their starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from autoscaler.domain.goodput import BatchBounds, NoiseCurve, NoiseScale
from autoscaler.domain.job import ParallelismSpec
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.report import StepObservation

# Of these configurations, the last ones taught, step times are remembered.
MAXIMUM_CONFIGURATIONS = 200
# Of a program's jobs, the last ones that taught it, so many are told apart.
_RECENT_JOBS = 32
# Half of the step times differing by more from those remembered means another program. A single
# one means that its size has become faster or slower.
_SAME_LOG_RATIO = 0.25
# Parameters that differ by more of their bytes are those of another model.
_SAME_BYTES = 0.01
# A curve takes the place of the remembered one when it has come about as far.
_AS_FAR = 0.95
# How sure the first noise scale of an earlier run is for the next.
_START_NOISE_LOG_DEVIATION = 0.3
# Of a curve that plans are made with.
_POINTS = 48


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one job has measured so far."""

    job: str
    bounds: BatchBounds
    parameter_bytes: int
    total_examples: float | None
    observations: Sequence[StepObservation]
    noise: NoiseCurve | None
    start_seconds: Mapping[str, float]
    parallelism: ParallelismSpec = field(default_factory=ParallelismSpec)


def is_laid_out_as(memory: ProgramMemory, parallelism: ParallelismSpec) -> bool:
    """Whether devices shared a step as in what is remembered, as far as can be told at submit."""
    return memory.parallelism.stages == parallelism.stages


def is_of(memory: ProgramMemory, initial_batch: int, parameter_bytes: int) -> bool:
    """Whether a job that is laid out so and tells these runs the program that is remembered."""
    most = _SAME_BYTES * max(memory.parameter_bytes, parameter_bytes)
    differ = abs(memory.parameter_bytes - parameter_bytes)
    return memory.initial_batch == initial_batch and differ <= most


def learnt(
    known: ProgramMemory | None, program: str, lesson: Lesson, now_seconds: float
) -> ProgramMemory:
    """What is to be remembered after a lesson; of each configuration the last step times count.

    A lesson that contradicts what is known, in its fingerprint or in half of its step times,
    takes its place.
    """
    initial = lesson.bounds.initial
    if known is not None and not (
        is_laid_out_as(known, lesson.parallelism) and is_of(known, initial, lesson.parameter_bytes)
    ):
        known = None
    if known is not None and _contradicts(lesson.observations, known.observations):
        known = replace(known, observations=(), start_seconds={})
    fresh = ProgramMemory(
        program=program,
        jobs=1,
        recent_jobs=(lesson.job,),
        updated_seconds=now_seconds,
        initial_batch=initial,
        parameter_bytes=lesson.parameter_bytes,
        bounds=lesson.bounds,
        total_examples=lesson.total_examples,
        observations=tuple(lesson.observations)[:MAXIMUM_CONFIGURATIONS],
        noise=lesson.noise,
        start_seconds=lesson.start_seconds,
        parallelism=lesson.parallelism,
    )
    if known is None:
        return fresh
    return replace(
        fresh,
        jobs=known.jobs + (lesson.job not in known.recent_jobs),
        recent_jobs=_with_latest(known.recent_jobs, lesson.job),
        observations=with_memory(lesson.observations, known)[:MAXIMUM_CONFIGURATIONS],
        noise=lesson.noise if _is_as_far(lesson.noise, known.noise) else known.noise,
        start_seconds={**known.start_seconds, **lesson.start_seconds},
    )


def with_memory(
    own: Sequence[StepObservation], memory: ProgramMemory | None
) -> tuple[StepObservation, ...]:
    """Return a job's own step times, then those remembered of what it has not measured itself.

    Where a size is faster or slower now than remembered, what else is remembered of it becomes an
    era before. A single report that contradicts what is remembered does not replace it.
    """
    if memory is None:
        return tuple(own)
    off = {
        o.configuration
        for o, ratio in _log_ratios(own, memory.observations)
        if ratio > _SAME_LOG_RATIO
    }
    kept = [o for o in own if o.is_settled or o.configuration not in off]
    measured = {o.configuration for o in kept}
    changed = {_size(o) for o in kept if o.era == 0 and o.configuration in off}
    others = (
        replace(known, era=known.era - 1) if _size(known) in changed else known
        for known in memory.observations
        if known.configuration not in measured
    )
    return (*kept, *others)


def _size(observation: StepObservation) -> tuple[str, int, int]:
    return observation.device_kind, observation.instances, observation.devices


def _log_ratios(
    own: Sequence[StepObservation], known: Sequence[StepObservation]
) -> list[tuple[StepObservation, float]]:
    """Return own step times that are remembered, with how far they are off, as logarithms."""
    remembered = {observation.configuration: observation.step_seconds for observation in known}
    return [
        (o, float(abs(np.log(o.step_seconds / remembered[o.configuration]))))
        for o in own
        if o.configuration in remembered
    ]


def _with_latest(recent: Sequence[str], job: str) -> tuple[str, ...]:
    others = [each for each in recent if each != job]
    return (job, *others)[:_RECENT_JOBS]


def _contradicts(own: Sequence[StepObservation], known: Sequence[StepObservation]) -> bool:
    ratios = [ratio for _, ratio in _log_ratios([o for o in own if o.is_settled], known)]
    return bool(ratios) and median(ratios) > _SAME_LOG_RATIO


def _is_as_far(curve: NoiseCurve | None, known: NoiseCurve | None) -> bool:
    if curve is None or known is None:
        return known is None
    return curve.progress_examples[-1] >= _AS_FAR * known.progress_examples[-1]


def noise_at_start(memory: ProgramMemory) -> NoiseScale | None:
    """The noise scale that an earlier run began with, for the time until it is measured."""
    if memory.noise is None:
        return None
    variance = memory.noise.noise_examples[0] / memory.initial_batch
    return NoiseScale(memory.initial_batch, 1.0, variance, _START_NOISE_LOG_DEVIATION)


def thinned(curve: NoiseCurve | None) -> NoiseCurve | None:
    """The curve at no more than about `_POINTS` of its points, half of them evenly apart in
    progress, half in its logarithm: noise scales change fastest at the beginning."""
    if curve is None or len(curve.progress_examples) <= _POINTS:
        return curve
    points = np.array(curve.progress_examples)
    first, last = max(points[0], 1.0), points[-1]
    half = _POINTS // 2
    wanted = np.concatenate([np.linspace(first, last, half), np.geomspace(first, last, half)])
    kept = np.unique(np.searchsorted(points, wanted).clip(0, len(points) - 1))
    levels = np.array(curve.noise_examples)[kept]
    return NoiseCurve(tuple(points[kept].tolist()), tuple(levels.tolist()))
