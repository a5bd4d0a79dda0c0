"""Jobs: what was submitted, and the phases it goes through."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches

from autoscaler.domain.errors import Conflict, UnknownJob
from autoscaler.domain.job import InstanceBounds, JobPhase, JobRecord, JobSpec
from autoscaler.domain.objective import Objective

FINAL_PHASES = tuple(phase for phase in JobPhase if phase.is_final)
_NEXT = {
    JobPhase.PENDING: set(JobPhase),
    JobPhase.RUNNING: {JobPhase.PENDING, JobPhase.STOPPING, JobPhase.FINISHED, JobPhase.FAILED},
    JobPhase.STOPPING: set(FINAL_PHASES),
}


class Jobs(ABC):
    """The jobs of one store. Methods take ids; only `find` also takes names."""

    @abstractmethod
    def add(self, spec: JobSpec, now_seconds: float) -> JobRecord:
        """Add a job. Its id is its name, and the name with `.2`, `.3`... when used before.

        Raises:
            Conflict: a job of that name has not ended.
        """

    @abstractmethod
    def find(self, name_or_id: str) -> JobRecord:
        """The latest job of that name, else the job of that id: what a person means.

        Raises:
            UnknownJob: there is none; the message suggests names that are close.
        """

    @abstractmethod
    def get(self, job: str) -> JobRecord:
        """The job of exactly this id.

        Raises:
            UnknownJob: there is none.
        """

    @abstractmethod
    def alive(self) -> tuple[JobRecord, ...]:
        """All jobs that have not ended, the oldest first."""

    @abstractmethod
    def ended_with_lighthouse(self) -> tuple[JobRecord, ...]:
        """The jobs that have ended and whose lighthouse has not been put out."""

    @abstractmethod
    def all(self) -> tuple[JobRecord, ...]:
        """All jobs there ever were, the oldest first."""

    def set_phase(
        self, job: str, phase: JobPhase, now_seconds: float, cause: str | None = None
    ) -> JobRecord:
        """Move a job on. To set the phase that it has changes nothing but a given `cause`.

        Raises:
            Conflict: the phase does not follow from the one that is.
            UnknownJob: there is none.
        """

        def move(record: JobRecord) -> JobRecord:
            moved = record if phase is record.phase else _moved(record, phase, now_seconds)
            return moved if cause is None else replace(moved, cause=cause)

        return self._change(job, move)

    def request_stop(self, job: str, now_seconds: float) -> JobRecord:
        """Have a job stopped; it is `STOPPING` until what it holds has been given back.

        Raises:
            Conflict: the job has ended.
            UnknownJob: there is none.
        """
        return self.set_phase(job, JobPhase.STOPPING, now_seconds)

    def change_spec(
        self,
        job: str,
        objective: Objective | None = None,
        instances: InstanceBounds | None = None,
        priority: float | None = None,
    ) -> JobRecord:
        """Change what may be changed while a job runs; None leaves it as it is.

        Raises:
            Conflict: the job is stopping or has ended.
            UnknownJob: there is none.
        """

        def change(record: JobRecord) -> JobRecord:
            phase, spec = record.phase, record.spec
            if phase.is_final or phase is JobPhase.STOPPING:
                state = f"has ended ({phase})" if phase.is_final else "is stopping"
                raise Conflict(f"job {record.id} {state}: submit it again to change it")
            changed = replace(
                spec,
                objective=objective or spec.objective,
                instances=instances or spec.instances,
                priority=priority or spec.priority,
            )
            return replace(record, spec=changed)

        return self._change(job, change)

    def set_lighthouse(self, job: str, address: str | None) -> None:
        """Keep the address of the job's lighthouse; None when it has none.

        Raises:
            UnknownJob: there is none.
        """
        self._change(job, lambda record: replace(record, lighthouse=address))

    def start_attempt(self, job: str, attempt: int, retry_seconds: float | None) -> None:
        """Number the next start of the script; it is held back until `retry_seconds`.

        Raises:
            Conflict: a later attempt was started already, or the job has ended.
            UnknownJob: there is none.
        """

        def start(record: JobRecord) -> JobRecord:
            if record.phase.is_final or attempt < record.attempt:
                raise Conflict(
                    f"job {job} is {record.phase} in attempt {record.attempt}: "
                    f"attempt {attempt} can't start any more"
                )
            return replace(record, attempt=attempt, retry_seconds=retry_seconds)

        self._change(job, start)

    @abstractmethod
    def _change(self, job: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord:
        """Keep what `change` makes of a job; nothing if it raises."""


def new_id(name: str, earlier: Sequence[JobRecord]) -> str:
    """The id of one more job of a name; `earlier` are all there were of it.

    Raises:
        Conflict: one of them has not ended.
    """
    for record in earlier:
        if not record.phase.is_final:
            raise Conflict(
                f"job {record.id} is {record.phase}: wait for its end, "
                f"say castor stop {record.id}, or choose another name"
            )
    return f"{name}.{len(earlier) + 1}" if earlier else name


def unknown_job(job: str, known: Iterable[str]) -> UnknownJob:
    """The error that there is no such job, with the ids that are close."""
    close = get_close_matches(job, known)
    meant = f"did you mean {' or '.join(close)}?" if close else "castor status lists all jobs"
    return UnknownJob(f"no job {job!r}: {meant}")


def _moved(record: JobRecord, phase: JobPhase, now_seconds: float) -> JobRecord:
    if record.phase.is_final:
        raise Conflict(f"job {record.id} has ended ({record.phase}): it can't become {phase}")
    if phase not in _NEXT[record.phase]:
        raise Conflict(f"job {record.id} is {record.phase}: it can't become {phase}")
    starts = phase is JobPhase.RUNNING and record.started_seconds is None
    return replace(
        record,
        phase=phase,
        started_seconds=now_seconds if starts else record.started_seconds,
        ended_seconds=now_seconds if phase.is_final else record.ended_seconds,
    )
