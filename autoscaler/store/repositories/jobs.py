"""Repository of jobs, with the transitions between their phases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from autoscaler.domain.errors import Conflict, UnknownJob
from autoscaler.domain.job import InstanceBounds, JobPhase, JobRecord, JobSpec, StopReason
from autoscaler.domain.job_names import first_of_name
from autoscaler.domain.objective import Objective
from autoscaler.domain.text import did_you_mean

FINAL_PHASES = tuple(phase for phase in JobPhase if phase.is_final)
_NEXT_PHASES = {
    JobPhase.PENDING: set(JobPhase),
    JobPhase.RUNNING: {JobPhase.PENDING, JobPhase.STOPPING, JobPhase.FINISHED, JobPhase.FAILED},
    JobPhase.STOPPING: set(FINAL_PHASES),
}


JobCheck = Callable[[JobRecord], None]
"""Check of a stored job before it is changed, in the same transaction."""


class JobOrder(StrEnum):
    """Order of a list of jobs."""

    NEWEST = "newest"
    OLDEST = "oldest"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Jobs of a list; None permits any.

    `text` is a part of the id, in lower case. `person` is the owner. Jobs with a `study` are its
    trials. `ended_since_seconds` (since the epoch) leaves only jobs that ended then or later.
    `is_latest` leaves only the last job of each owner and name, which nobody submitted or resumed
    since.
    """

    phases: tuple[JobPhase, ...] | None = None
    person: str | None = None
    team: str | None = None
    study: str | None = None
    text: str | None = None
    ended_since_seconds: float | None = None
    is_latest: bool = False

    def permits(self, record: JobRecord) -> bool:
        """Return whether a job is in the list, whatever `is_latest` says."""
        spec = record.spec
        return (
            (self.phases is None or record.phase in self.phases)
            and self.person in (None, spec.owner.person)
            and self.team in (None, spec.team)
            and self.study in (None, spec.study)
            and (self.text or "") in record.id
            and self._has_ended_since(record.ended_seconds)
        )

    def _has_ended_since(self, ended_seconds: float | None) -> bool:
        since_seconds = self.ended_since_seconds
        if since_seconds is None:
            return True
        return ended_seconds is not None and ended_seconds >= since_seconds


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Place of a job in a list of any order, after which the next page begins."""

    number: int
    name: str


def accept(record: JobRecord) -> None:
    """Accept any job, as the precondition of a change."""


class Jobs(ABC):
    """Jobs of one store. Methods take ids; only `find` and `named` also take names."""

    @abstractmethod
    def add(self, spec: JobSpec, now_seconds: float, driver: str | None = None) -> JobRecord:
        """Add a job. Its id is its name, with `.2`, `.3`... appended if the name was used before.

        Raises:
            Conflict: a job with this name has not ended; or `driver`, if it is not None, was not
                the last to take the lease of the job's study.
        """

    def find(self, name_or_id: str) -> JobRecord:
        """Return the latest job with this name, else the job with this id.

        Raises:
            UnknownJob: no job has this name or id; the message suggests similar ids.
        """
        return self.named(name_or_id)[-1]

    def progress_before(self, job: JobRecord) -> float:
        """Return the useful examples with which a resumed job began; 0 for other jobs."""
        reports = (earlier.report for earlier in self.runs_until(job)[:-1])
        known = [report.progress_examples for report in reports if report is not None]
        return known[-1] if known else 0.0

    def runs(self, job: JobRecord) -> tuple[JobRecord, ...]:
        """Return all runs of a job, which `castor resume` added, the oldest first.

        Runs have the name of the job, and its files. Only the jobs of this name are read.
        """
        of_name = self.of_name(job.spec.name)
        return tuple(run for run in of_name if run.files_of == job.files_of)

    def runs_until(self, job: JobRecord) -> tuple[JobRecord, ...]:
        """Return a job and the earlier runs that it goes on from, the oldest first."""
        if job.spec.resumes is None:
            return (job,)
        return (*(run for run in self.runs(job) if run.number < job.number), job)

    def named(self, name_or_id: str) -> tuple[JobRecord, ...]:
        """Return all jobs with this name, the oldest first, else the one with this id.

        `digits.1` is the first job with the name `digits`, whose id is its name.

        Raises:
            UnknownJob: no job has this name or id; the message suggests similar ids.
        """
        if jobs := self.of_name(name_or_id):
            return jobs
        name = first_of_name(name_or_id)
        of_name = () if name is None else self.of_name(name)
        return of_name[:1] or (self.get(name_or_id),)

    @abstractmethod
    def of_name(self, name: str) -> tuple[JobRecord, ...]:
        """Return all jobs with this name, ended ones included, the oldest first."""

    def of_study(self, study: str) -> tuple[JobRecord, ...]:
        """Return all jobs of a study, ended ones included, the oldest first."""
        return self.page(JobFilter(study=study), JobOrder.OLDEST, None)

    @abstractmethod
    def of_directory(self, directory: str) -> tuple[JobRecord, ...]:
        """Return the jobs with this `JobSpec.shared_directory`, the oldest first."""

    @abstractmethod
    def of_ids(self, jobs: Collection[str]) -> Mapping[str, JobRecord]:
        """Return the jobs with these ids, by id; unknown ids are left out."""

    @abstractmethod
    def get(self, job: str) -> JobRecord:
        """Return the job with this id.

        Raises:
            UnknownJob: no job has this id.
        """

    @abstractmethod
    def alive(self) -> tuple[JobRecord, ...]:
        """Return all jobs that have not ended, the oldest first."""

    @abstractmethod
    def ended_with_lighthouse(self) -> tuple[JobRecord, ...]:
        """Return the ended jobs that still have the address of a lighthouse."""

    @abstractmethod
    def all(self) -> tuple[JobRecord, ...]:
        """Return all jobs, ended ones included, the oldest first."""

    @abstractmethod
    def page(
        self,
        wanted: JobFilter,
        order: JobOrder,
        limit: int | None,
        after: JobPlace | None = None,
    ) -> tuple[JobRecord, ...]:
        """Return at most `limit` jobs of a list, None: all; those after a place, None: all.

        Jobs of the same name are in order of their numbers. The work does not grow with the number
        of pages before this one.
        """

    @abstractmethod
    def phase_counts(self, wanted: JobFilter) -> Mapping[JobPhase, int]:
        """Return the number of jobs of a list by phase; phases without jobs are left out."""

    def set_phase(
        self,
        job: str,
        phase: JobPhase,
        now_seconds: float,
        cause: str | None = None,
        stop_reason: StopReason | None = None,
    ) -> JobRecord:
        """Move a job to a phase, and set its `cause` and `stop_reason` unless they are None.

        The current phase is accepted: then only these change.

        Raises:
            Conflict: the phase can't follow the current phase.
            UnknownJob: no job has this id.
        """

        def move(record: JobRecord) -> JobRecord:
            moved = record if phase is record.phase else _with_phase(record, phase, now_seconds)
            return replace(
                moved,
                cause=moved.cause if cause is None else cause,
                stop_reason=moved.stop_reason if stop_reason is None else stop_reason,
            )

        return self._change(job, move)

    def request_stop(
        self,
        job: str,
        now_seconds: float,
        precondition: JobCheck = accept,
        driver: str | None = None,
    ) -> JobRecord:
        """Move a job to `STOPPING`, which lasts until all its instances have ended.

        Raises:
            Conflict: the job has ended, or `precondition` refuses the stored job; or `driver`, if
                it is not None, was not the last to take the lease of the job's study.
            UnknownJob: no job has this id.
        """

        def stop(record: JobRecord) -> JobRecord:
            precondition(record)
            stopping = JobPhase.STOPPING
            return (
                record if record.phase is stopping else _with_phase(record, stopping, now_seconds)
            )

        return self._change(job, stop, driver)

    def change_spec(
        self,
        job: str,
        objective: Objective | None = None,
        instances: InstanceBounds | None = None,
        priority: float | None = None,
        precondition: JobCheck = accept,
    ) -> JobRecord:
        """Change the parts of a job's spec that may change while it runs; None keeps a part.

        Raises:
            Conflict: the job is stopping or has ended, or `precondition` refuses the stored job.
            UnknownJob: no job has this id.
        """

        def change(record: JobRecord) -> JobRecord:
            precondition(record)
            return with_changes(record, objective, instances, priority)

        return self._change(job, change)

    def set_lighthouse(self, job: str, address: str | None) -> None:
        """Store the address of the job's lighthouse; None if the job has no lighthouse.

        An empty address is that of a lighthouse that is being started.

        Raises:
            UnknownJob: no job has this id.
        """
        self._change(job, lambda record: replace(record, lighthouse=address))

    def start_attempt(self, job: str, attempt: int, retry_seconds: float | None) -> None:
        """Set the number of the next start of the script, which is due at `retry_seconds`.

        `retry_seconds` is seconds since the epoch; None means at once.

        Raises:
            Conflict: a later attempt has started already, or the job has ended.
            UnknownJob: no job has this id.
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
    def _change(
        self, job: str, change: Callable[[JobRecord], JobRecord], driver: str | None = None
    ) -> JobRecord:
        """Store the result of `change` for a job; nothing if it raises.

        Raises:
            Conflict: `driver` is not None and was not the last to take the lease of its study.
        """


def with_changes(
    record: JobRecord,
    objective: Objective | None,
    instances: InstanceBounds | None,
    priority: float | None,
) -> JobRecord:
    """Return a job with changes of its spec; None keeps a part.

    Raises:
        Conflict: the job is stopping or has ended.
    """
    phase, spec = record.phase, record.spec
    if phase.is_final or phase is JobPhase.STOPPING:
        state = f"has ended ({phase})" if phase.is_final else "is stopping"
        way_out = (
            "castor submit runs its job file again"
            if phase is JobPhase.FINISHED
            else f"castor resume {record.id} KEY=VALUE continues it with changes"
        )
        raise Conflict(f"job {record.id} {state}: {way_out}")
    changed = replace(
        spec,
        objective=objective or spec.objective,
        instances=instances or spec.instances,
        priority=priority or spec.priority,
    )
    return replace(record, spec=changed)


def new_id(name: str, earlier: Sequence[JobRecord]) -> str:
    """Return the id of a new job; `earlier` are all jobs so far with the same name.

    Raises:
        Conflict: an earlier job has not ended.
    """
    for record in earlier:
        if not record.phase.is_final:
            raise Conflict(
                f"job {record.id} is {record.phase}: wait for its end, "
                f"run castor stop {record.id}, or choose another name"
            )
    return f"{name}.{len(earlier) + 1}" if earlier else name


def unknown_job(job: str, known: Iterable[str]) -> UnknownJob:
    """Return the error for an id that no job has; the message suggests similar ids of `known`."""
    hint = did_you_mean(job, known, "castor status lists all jobs", most=3)
    return UnknownJob(f"no job {job!r}: {hint}")


def _with_phase(record: JobRecord, phase: JobPhase, now_seconds: float) -> JobRecord:
    if record.phase.is_final:
        raise Conflict(f"job {record.id} has ended ({record.phase}): it can't become {phase}")
    if phase not in _NEXT_PHASES[record.phase]:
        raise Conflict(f"job {record.id} is {record.phase}: it can't become {phase}")
    starts = phase is JobPhase.RUNNING and record.started_seconds is None
    return replace(
        record,
        phase=phase,
        started_seconds=now_seconds if starts else record.started_seconds,
        ended_seconds=now_seconds if phase.is_final else record.ended_seconds,
    )
