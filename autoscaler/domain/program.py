"""A program: what jobs that run the same script have in common, and what was learnt of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.domain.goodput import BatchBounds, NoiseCurve
from autoscaler.domain.job import ParallelismSpec
from autoscaler.domain.report import StepObservation


@dataclass(frozen=True, slots=True)
class ProgramMemory:
    """What the jobs of one program have taught: the prior of the next.

    `initial_batch`, `parameter_bytes` and the stages of its `parallelism` are the fingerprint: a
    job that tells others runs another program under the same name, and starts anew.
    `observations` are the last ones of each configuration, `noise` is the curve of the job that
    came furthest, `start_seconds` (offer id -> seconds) are from the launch call to the first
    step. `jobs` have taught it in all, the last of them `recent_jobs`, the latest first.
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
