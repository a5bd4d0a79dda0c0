"""Programs: jobs that run the same script share measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.domain.goodput import BatchBounds, NoiseCurve
from autoscaler.domain.job import ParallelismSpec
from autoscaler.domain.report import MemoryPeak, StepObservation


@dataclass(frozen=True, slots=True)
class ProgramMemory:
    """Measurements from the jobs of one program: the prior of the next job.

    `initial_batch`, `parameter_bytes`, and the stages and shard of `parallelism` are the
    fingerprint. A job with another fingerprint runs another program under the same name, and
    starts without a prior. `observations` are the last ones of each configuration. `noise` is the
    curve of the job with the most progress. `start_seconds` (offer id -> seconds) last from the
    launch call to the first step. `jobs` counts all jobs that contributed; `recent_jobs` are the
    last of them, the latest first. `peaks` are the largest memory by number of examples at once.
    """

    program: str
    jobs: int
    recent_jobs: tuple[str, ...]
    updated_seconds: float
    initial_batch: int
    parameter_bytes: int
    bounds: BatchBounds
    total_examples: float | None
    observations: tuple[StepObservation, ...] = ()
    noise: NoiseCurve | None = None
    start_seconds: Mapping[str, float] = field(default_factory=dict)
    parallelism: ParallelismSpec = field(default_factory=ParallelismSpec)
    peaks: tuple[MemoryPeak, ...] = ()
