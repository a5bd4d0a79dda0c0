"""Submission of jobs to a simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from autoscaler.domain.job import JobSpec
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import GroundTruth
from autoscaler.simulator.training.base import JobTraining
from autoscaler.simulator.workloads.workload import Arrival


@dataclass(frozen=True, slots=True)
class SimulatedSubmission:
    """Submitted job with its simulated training; `look` was measured before submission."""

    arrival: Arrival
    spec: JobSpec
    training: JobTraining
    look: tuple[StepObservation, ...] = ()


Submit = Callable[[SimulatedSubmission], str]


class Submitter(Protocol):
    """Source of jobs during a simulation."""

    @property
    def is_done(self) -> bool:
        """Whether no job will be submitted any more, whatever happens."""
        ...

    def next_seconds(self) -> float | None:
        """Return the next time to act without an event; None: only after an event."""
        ...

    def act(self, now_seconds: float, submit: Submit) -> None:
        """Submit what is due; `submit` adds a job and returns its id."""
        ...

    def truth(self, job: str) -> GroundTruth | None:
        """Return the ground truth of a job for oracles; None: there is none."""
        ...
