"""The step times that a job's models are made from, put together once for the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autoscaler.domain.job import JobRecord
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.report import StepObservation
from autoscaler.goodput.memory import with_memory
from autoscaler.store.store import Store

# A configuration counts as measured once it has trained for this long.
_MEASURED_SECONDS = 0.5

Observations = tuple[StepObservation, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StepTimes:
    """What is known of one job: its `own`, and `all` with those of its program."""

    told: Observations
    memory: ProgramMemory | None
    own: Observations
    all: Observations


class KnownStepTimes:
    """The step times of all jobs, as the store has them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, StepTimes] = {}

    def of(self, job: JobRecord, memory: ProgramMemory | None) -> StepTimes:
        """Those of a job that were measured for long enough to count, and those remembered.

        The same object for as long as the store and `memory` are the same objects.
        """
        told = self._store.measurements.observations(job.id)
        known = self._known.get(job.id)
        if known is not None and known.told is told and known.memory is memory:
            return known
        own = own_step_times(told)
        found = StepTimes(told, memory, own, with_memory(own, memory))
        self._known[job.id] = found
        return found

    def forget(self, jobs: Iterable[str]) -> None:
        """Drop what is kept of all jobs but these."""
        kept = set(jobs)
        self._known = {job: known for job, known in self._known.items() if job in kept}


def own_step_times(told: Observations) -> Observations:
    """Those that were measured for long enough to count."""
    return tuple(each for each in told if each.steps * each.step_seconds >= _MEASURED_SECONDS)
