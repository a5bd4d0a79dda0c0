"""Step times that jobs' models are fitted to, cached while their sources are unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autoscaler.domain.job import JobRecord
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.report import StepObservation
from autoscaler.goodput.memory import with_memory
from autoscaler.store.store import Store

# A configuration counts as measured after this much training.
_MEASURED_SECONDS = 0.5

Observations = tuple[StepObservation, ...]


@dataclass(frozen=True, slots=True, eq=False)
class JobStepTimes:
    """Step times of one job: its `own`, and `all` including those of its program's memory.

    `told` and `memory` are the sources, used to recognise a change.
    """

    told: Observations
    memory: ProgramMemory | None
    own: Observations
    all: Observations


class KnownStepTimes:
    """Step times of all jobs in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, JobStepTimes] = {}

    def of(self, job: JobRecord, memory: ProgramMemory | None) -> JobStepTimes:
        """Return the job's own step times that count, and those remembered of its program.

        The same object while the store's observations and `memory` are the same objects.
        """
        observations = self._store.measurements.observations(job.id)
        cached = self._known.get(job.id)
        if cached is not None and cached.told is observations and cached.memory is memory:
            return cached
        own = own_step_times(observations)
        step_times = JobStepTimes(observations, memory, own, with_memory(own, memory))
        self._known[job.id] = step_times
        return step_times

    def forget(self, jobs: Iterable[str]) -> None:
        """Drop the cached step times of all jobs but these."""
        kept_jobs = set(jobs)
        self._known = {
            job: step_times for job, step_times in self._known.items() if job in kept_jobs
        }


def own_step_times(told: Observations) -> Observations:
    """Return the step times of configurations that trained long enough to count."""
    return tuple(
        observation
        for observation in told
        if observation.steps * observation.step_seconds >= _MEASURED_SECONDS
    )
