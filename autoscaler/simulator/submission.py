"""Who submits the jobs of a simulation, and with what each is simulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from autoscaler.domain.job import JobSpec
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import Truth
from autoscaler.simulator.job_training import JobTraining
from autoscaler.simulator.workload import Arrival


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as it is submitted, and the training that it is; `look` was measured before."""

    arrival: Arrival
    spec: JobSpec
    training: JobTraining
    look: tuple[StepObservation, ...] = ()


Submit = Callable[[Submission], str]


class Submitter(Protocol):
    """Submits jobs as time goes on, and sees what becomes of them."""

    @property
    def is_done(self) -> bool:
        """Nothing more will be submitted, whatever happens."""
        ...

    def next_seconds(self) -> float | None:
        """When it is to act next by itself; None: once something has happened."""
        ...

    def act(self, now_seconds: float, submit: Submit) -> None:
        """Do what there is to do now; `submit` takes a job in and returns its id."""
        ...

    def truth(self, job: str) -> Truth | None:
        """What nobody can know of a job, for oracles; None: it is not told."""
        ...
