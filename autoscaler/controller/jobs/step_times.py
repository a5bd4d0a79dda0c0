"""Step times that jobs' models are fitted to, cached while their sources are unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from autoscaler.domain.job import JobRecord
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.report import StepObservation
from autoscaler.goodput.memory import with_memory
from autoscaler.store.store import Store

# A configuration counts as measured after this much training.
_MEASURED_SECONDS = 0.5

Observations = tuple[StepObservation, ...]


@dataclass(frozen=True, slots=True)
class JobStepTimes:
    """Step times of one job: its `own`, and `all` including those of its program's memory.

    The step times follow from the memory and the store's observations, of which `revision` is the
    revision. Step times of one job are equal if these are.
    """

    revision: int
    memory: ProgramMemory | None
    own: Observations = field(compare=False)
    all: Observations = field(compare=False)


class OwnStepTimes:
    """Step times that jobs measured themselves, read again when their revision changes."""

    def __init__(self, store: Store) -> None:
        self._measurements = store.measurements
        self._known: dict[str, tuple[int, Observations]] = {}

    def of(self, job: str) -> tuple[int, Observations]:
        """Return the revision of a job's observations, and those that count.

        Observations of configurations that did not train for long enough do not count.
        """
        revision = self._measurements.observations_revision(job)
        known = self._known.get(job)
        if known is None or known[0] != revision:
            counting = tuple(
                observation
                for observation in self._measurements.observations(job)
                if observation.steps * observation.step_seconds >= _MEASURED_SECONDS
            )
            known = self._known[job] = revision, counting
        return known

    def forget(self, jobs: Iterable[str]) -> None:
        """Drop the cached step times of all jobs but these."""
        kept_jobs = set(jobs)
        self._known = {job: known for job, known in self._known.items() if job in kept_jobs}


class KnownStepTimes:
    """Step times of all jobs in the store."""

    def __init__(self, store: Store) -> None:
        self._own = OwnStepTimes(store)
        self._known: dict[str, JobStepTimes] = {}

    def of(self, job: JobRecord, memory: ProgramMemory | None) -> JobStepTimes:
        """Return the job's own step times that count, and those remembered of its program.

        The same object while the revision of the store's observations and `memory` are equal.
        """
        revision, own = self._own.of(job.id)
        cached = self._known.get(job.id)
        if cached is not None and (cached.revision, cached.memory) == (revision, memory):
            return cached
        step_times = JobStepTimes(revision, memory, own, with_memory(own, memory))
        self._known[job.id] = step_times
        return step_times

    def forget(self, jobs: Iterable[str]) -> None:
        """Drop the cached step times of all jobs but these."""
        kept_jobs = set(jobs)
        self._own.forget(kept_jobs)
        self._known = {
            job: step_times for job, step_times in self._known.items() if job in kept_jobs
        }
