"""Program memory: updated by running jobs, and used by later jobs of the same program."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from autoscaler.controller.jobs.step_times import JobStepTimes
from autoscaler.domain.goodput import NoiseCurve
from autoscaler.domain.job import JobRecord, JobSpec
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.goodput.draws import is_usable
from autoscaler.goodput.memory import (
    JobMeasurements,
    is_laid_out_as,
    is_of,
    learnt,
    noise_at_start,
    thinned,
)
from autoscaler.store.repositories.measurements import START_DURATION, NoisePoint
from autoscaler.store.store import Store

# Factor of progress between two updates of a program's noise curve by one job.
_NOISE_SPACING = 1.05


class ProgramMemories:
    """Memories of programs, and the contributions of each job that has not ended."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._learnt_from: dict[str, tuple[object, ...]] = {}
        self._last_seen: dict[str, tuple[int, float]] = {}

    def of(self, job: JobRecord) -> ProgramMemory | None:
        """Return the memory of the job's program; None if the job's report contradicts it."""
        memory = recalled(self._store, job.spec)
        if memory is None or job.report is None:
            return memory
        report = job.report
        return memory if is_of(memory, report.bounds.initial, report.parameter_bytes) else None

    def learn(self, job: JobRecord, step_times: JobStepTimes, now_seconds: float) -> None:
        """Update the program's memory with a job's measurements if these are new."""
        report, observations = job.report, step_times.own
        if report is None or not observations:
            return
        progress = math.log(max(report.progress_examples, 1.0)) // math.log(_NOISE_SPACING)
        if self._last_seen.get(job.id) == (step_times.revision, progress):
            return
        self._last_seen[job.id] = step_times.revision, progress
        sizes = frozenset(
            (observation.device_kind, observation.instances, observation.devices)
            for observation in observations
        )
        findings = (sizes, progress)
        if self._learnt_from.get(job.id) == findings:
            return
        self._learnt_from[job.id] = findings
        history = self._store.measurements.noise_history(job.id)
        durations = self._store.measurements.durations(job.id)
        lesson = JobMeasurements(
            job=job.id,
            bounds=report.bounds,
            parameter_bytes=report.parameter_bytes,
            total_examples=report.total_examples,
            observations=observations,
            noise=_noise_curve(history),
            start_seconds={
                offer: mean.seconds
                for (offer, name), mean in durations.items()
                if offer is not None and name == START_DURATION
            },
            parallelism=job.spec.parallelism,
            peaks=report.memory,
        )
        program = job.spec.program_name
        memory = self._store.programs.recall(program)
        self._store.programs.remember(learnt(memory, program, lesson, now_seconds))

    def forget(self, jobs: Iterable[str]) -> None:
        """Drop the records of all jobs but these."""
        kept_jobs = set(jobs)
        self._learnt_from = {
            job: findings for job, findings in self._learnt_from.items() if job in kept_jobs
        }
        self._last_seen = {job: last for job, last in self._last_seen.items() if job in kept_jobs}


def _noise_curve(history: Sequence[NoisePoint]) -> NoiseCurve | None:
    usable = [point for point in history if is_usable(point.noise)]
    if not usable:
        return None
    return NoiseCurve(
        tuple(point.progress_examples for point in usable),
        tuple(point.noise.examples for point in usable),
    )


def recalled(store: Store, spec: JobSpec) -> ProgramMemory | None:
    """Return the memory of a job's program if it has the same layout as the job; else None."""
    return of_layout(store.programs.recall(spec.program_name), spec)


def of_layout(memory: ProgramMemory | None, spec: JobSpec) -> ProgramMemory | None:
    """Return a memory if it has the same layout as the job; else None."""
    return memory if memory is not None and is_laid_out_as(memory, spec.parallelism) else None


def informed(job: JobSnapshot, memory: ProgramMemory) -> JobSnapshot:
    """Return the job snapshot with the noise curve of its program.

    Until the job reports, batch bounds, length and first noise scale are also those of the memory.
    A curve that ends before the job's progress is left out, as it may be the job's own.
    """
    curve = memory.noise
    if curve is not None and curve.progress_examples[-1] <= job.progress_examples * _NOISE_SPACING:
        curve = None
    curve = thinned(curve)
    if job.progress_examples > 0:
        return replace(job, noise_curve=curve)
    remaining = job.remaining_examples
    return replace(
        job,
        batch=memory.bounds,
        remaining_examples=memory.total_examples if remaining is None else remaining,
        noise=noise_at_start(memory) if job.noise is None else job.noise,
        noise_curve=curve,
    )
