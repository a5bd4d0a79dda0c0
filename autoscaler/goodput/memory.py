"""Program memory: measurements that later jobs of the same program start from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from autoscaler.domain.goodput import BatchBounds, NoiseCurve, NoiseScale
from autoscaler.domain.job import ParallelismSpec
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.report import MemoryPeak, StepObservation

# Step times of the latest configurations are kept, at most this many.
MAXIMUM_CONFIGURATIONS = 200
# Ids of the latest contributing jobs are kept, at most this many, so that each counts once.
_RECENT_JOBS = 32
# Log ratio of step times beyond which they contradict memory. If half of them do, the program has
# changed; a single one means that its size has become faster or slower.
_SAME_LOG_RATIO = 0.25
# Models whose parameter bytes differ by more than this share are different.
_SAME_BYTES_SHARE = 0.01
# A curve replaces the remembered one when its progress reaches this share of the other's.
_REPLACING_PROGRESS_SHARE = 0.95
# Log standard deviation of an earlier run's first noise scale, for the next run.
_START_NOISE_LOG_DEVIATION = 0.3
# Number of points of a thinned noise curve.
_POINTS = 48


@dataclass(frozen=True, slots=True)
class JobMeasurements:
    """Measurements of one job so far."""

    job: str
    bounds: BatchBounds
    parameter_bytes: int
    total_examples: float | None
    observations: Sequence[StepObservation]
    noise: NoiseCurve | None
    start_seconds: Mapping[str, float]
    parallelism: ParallelismSpec = field(default_factory=ParallelismSpec)
    peaks: tuple[MemoryPeak, ...] = ()


def is_laid_out_as(memory: ProgramMemory, parallelism: ParallelismSpec) -> bool:
    """Return whether a job has as many pipeline stages, and the same shard, as the remembered one.

    At submission no more is known of the layout.
    """
    known = memory.parallelism
    return (known.stages, known.shard) == (parallelism.stages, parallelism.shard)


def is_of(memory: ProgramMemory, initial_batch: int, parameter_bytes: int) -> bool:
    """Return whether a job with the same layout runs the remembered program."""
    tolerated_bytes = _SAME_BYTES_SHARE * max(memory.parameter_bytes, parameter_bytes)
    difference_bytes = abs(memory.parameter_bytes - parameter_bytes)
    return memory.initial_batch == initial_batch and difference_bytes <= tolerated_bytes


def learnt(
    known: ProgramMemory | None, program: str, lesson: JobMeasurements, now_seconds: float
) -> ProgramMemory:
    """Return the memory updated by a job's measurements.

    The latest step times of each configuration count. Measurements that contradict the memory, in
    the program's fingerprint or in half of the step times, replace it.
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
        peaks=lesson.peaks,
    )
    if known is None:
        return fresh
    return replace(
        fresh,
        jobs=known.jobs + (lesson.job not in known.recent_jobs),
        recent_jobs=_with_latest(known.recent_jobs, lesson.job),
        observations=with_memory(lesson.observations, known)[:MAXIMUM_CONFIGURATIONS],
        noise=lesson.noise if _replaces(lesson.noise, known.noise) else known.noise,
        start_seconds={**known.start_seconds, **lesson.start_seconds},
        peaks=_latest_peaks((*known.peaks, *lesson.peaks)),
    )


def _latest_peaks(peaks: Sequence[MemoryPeak]) -> tuple[MemoryPeak, ...]:
    """Return the last peak at each number of examples on each kind of device."""
    latest = {(peak.device_kind, peak.device_batch): peak for peak in peaks}
    return tuple(latest.values())[-MAXIMUM_CONFIGURATIONS:]


def with_memory(
    observations_of_job: Sequence[StepObservation], memory: ProgramMemory | None
) -> tuple[StepObservation, ...]:
    """Return a job's own step times, then remembered ones of configurations it has not measured.

    If a size has become faster or slower, other remembered step times of that size are moved to an
    earlier era. A single unsettled report that contradicts the memory is ignored.
    """
    if memory is None:
        return tuple(observations_of_job)
    contradicting = {
        observation.configuration
        for observation, ratio in _log_ratios(observations_of_job, memory.observations)
        if ratio > _SAME_LOG_RATIO
    }
    kept = [
        observation
        for observation in observations_of_job
        if observation.is_settled or observation.configuration not in contradicting
    ]
    measured = {observation.configuration for observation in kept}
    changed_sizes = {
        _size(observation)
        for observation in kept
        if observation.era == 0 and observation.configuration in contradicting
    }
    remembered = (
        replace(observation, era=observation.era - 1)
        if _size(observation) in changed_sizes
        else observation
        for observation in memory.observations
        if observation.configuration not in measured
    )
    return (*kept, *remembered)


def _size(observation: StepObservation) -> tuple[str, int, int]:
    return observation.device_kind, observation.instances, observation.devices


def _log_ratios(
    measured: Sequence[StepObservation], memory: Sequence[StepObservation]
) -> list[tuple[StepObservation, float]]:
    """Return the own observations that are remembered, with absolute log ratios of the times."""
    remembered = {observation.configuration: observation.step_seconds for observation in memory}
    return [
        (
            observation,
            float(abs(np.log(observation.step_seconds / remembered[observation.configuration]))),
        )
        for observation in measured
        if observation.configuration in remembered
    ]


def _with_latest(recent: Sequence[str], job: str) -> tuple[str, ...]:
    others = [recent_job for recent_job in recent if recent_job != job]
    return (job, *others)[:_RECENT_JOBS]


def _contradicts(measured: Sequence[StepObservation], memory: Sequence[StepObservation]) -> bool:
    settled = [observation for observation in measured if observation.is_settled]
    ratios = [ratio for _, ratio in _log_ratios(settled, memory)]
    return bool(ratios) and median(ratios) > _SAME_LOG_RATIO


def _replaces(curve: NoiseCurve | None, remembered: NoiseCurve | None) -> bool:
    if curve is None or remembered is None:
        return remembered is None
    return (
        curve.progress_examples[-1] >= _REPLACING_PROGRESS_SHARE * remembered.progress_examples[-1]
    )


def noise_at_start(memory: ProgramMemory) -> NoiseScale | None:
    """Return the first noise scale of an earlier run, used until measured; None if unknown."""
    if memory.noise is None:
        return None
    variance = memory.noise.noise_examples[0] / memory.initial_batch
    return NoiseScale(memory.initial_batch, 1.0, variance, _START_NOISE_LOG_DEVIATION)


def thinned(curve: NoiseCurve | None) -> NoiseCurve | None:
    """Return the curve with at most about `_POINTS` of its points.

    Half of the points are evenly spaced in progress and half in its logarithm, because noise
    scales change fastest at the start.
    """
    if curve is None or len(curve.progress_examples) <= _POINTS:
        return curve
    progress = np.array(curve.progress_examples)
    first, last = max(progress[0], 1.0), progress[-1]
    half = _POINTS // 2
    wanted_progress = np.concatenate(
        [np.linspace(first, last, half), np.geomspace(first, last, half)]
    )
    indices = np.unique(np.searchsorted(progress, wanted_progress).clip(0, len(progress) - 1))
    noise_examples = np.array(curve.noise_examples)[indices]
    return NoiseCurve(tuple(progress[indices].tolist()), tuple(noise_examples.tolist()))
