"""What jobs teach the program that they run, and what it tells the next of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from autoscaler.domain.goodput import NoiseCurve
from autoscaler.domain.job import JobRecord, JobSpec
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.keeping import Same
from autoscaler.goodput.draws import is_usable
from autoscaler.goodput.memory import (
    Lesson,
    is_laid_out_as,
    is_of,
    learnt,
    noise_at_start,
    thinned,
)
from autoscaler.store.measurements import START_DURATION, NoisePoint
from autoscaler.store.store import Store

# Between two lessons about its noise a job makes this much of its progress.
_NOISE_SPACING = 1.05


class Programs:
    """The memories of programs, and what each job that is alive has added to them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._taught: dict[str, tuple[object, ...]] = {}
        self._looked_at: dict[str, tuple[Same, float]] = {}

    def of(self, job: JobRecord) -> ProgramMemory | None:
        """What is remembered of the job's program, if by what it has told it runs that."""
        memory = recalled(self._store, job.spec)
        if memory is None or job.report is None:
            return memory
        told = job.report
        return memory if is_of(memory, told.bounds.initial, told.parameter_bytes) else None

    def learn(
        self, job: JobRecord, observations: Sequence[StepObservation], now_seconds: float
    ) -> None:
        """Let the job teach its program what it has measured, if that is news."""
        told = job.report
        if told is None or not observations:
            return
        progress = math.log(max(told.progress_examples, 1.0)) // math.log(_NOISE_SPACING)
        if self._looked_at.get(job.id) == (Same(observations), progress):
            return
        self._looked_at[job.id] = Same(observations), progress
        sizes = frozenset((o.device_kind, o.instances, o.devices) for o in observations)
        news = (sizes, progress)
        if self._taught.get(job.id) == news:
            return
        self._taught[job.id] = news
        history = self._store.measurements.noise_history(job.id)
        durations = self._store.measurements.durations(job.id)
        lesson = Lesson(
            job=job.id,
            bounds=told.bounds,
            parameter_bytes=told.parameter_bytes,
            total_examples=told.total_examples,
            observations=observations,
            noise=_curve(history),
            start_seconds={
                offer: mean.seconds
                for (offer, what), mean in durations.items()
                if offer is not None and what == START_DURATION
            },
            parallelism=job.spec.parallelism,
        )
        program = job.spec.program_name
        known = self._store.programs.recall(program)
        self._store.programs.remember(learnt(known, program, lesson, now_seconds))

    def forget(self, jobs: Iterable[str]) -> None:
        """Drop what is kept of all jobs but these."""
        kept = set(jobs)
        self._taught = {job: news for job, news in self._taught.items() if job in kept}
        self._looked_at = {job: seen for job, seen in self._looked_at.items() if job in kept}


def _curve(history: Sequence[NoisePoint]) -> NoiseCurve | None:
    usable = [point for point in history if is_usable(point.noise)]
    if not usable:
        return None
    return NoiseCurve(
        tuple(point.progress_examples for point in usable),
        tuple(point.noise.examples for point in usable),
    )


def recalled(store: Store, spec: JobSpec) -> ProgramMemory | None:
    """What is remembered of the program that a job says it runs, laid out as the job is."""
    memory = store.programs.recall(spec.program_name)
    return memory if memory is not None and is_laid_out_as(memory, spec.parallelism) else None


def informed(job: JobSnapshot, memory: ProgramMemory) -> JobSnapshot:
    """The job with its program's noise curve, and as long as it has not told of itself, with the
    batch bounds, the length and the first noise scale that its program had.

    A curve that has come no further than the job is no news to it: it may be its own.
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
