"""Jobs, instances, intents and lines of the ledger in memory, with their indexes.

All values are frozen: a change replaces a value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from threading import Lock
from typing import Any, Generic, TypeVar

from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.intent import Intent, IntentState
from autoscaler.domain.job import JobRecord
from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.domain.time_use import LostWork
from autoscaler.store.records.holding import UNNUMBERED
from autoscaler.store.repositories.capacity import Refusal
from autoscaler.store.repositories.instances import unknown_instance
from autoscaler.store.repositories.jobs import unknown_job
from autoscaler.store.repositories.trials import require_driver

Value = TypeVar("Value")


class Shelf(Generic[Value]):
    """Values by key, sorted by `rank`. The rank of a key must not change."""

    def __init__(self, rank: Callable[[Value], Any]) -> None:
        self._rank = rank
        self._values: dict[Hashable, Value] = {}
        self._is_sorted = True
        self._all_values: tuple[Value, ...] | None = ()

    def put(self, key: Hashable, value: Value) -> None:
        """Insert a value, or replace the value of the same key."""
        if key not in self._values:
            self._is_sorted = False
        self._values[key] = value
        self._all_values = None

    def remove(self, key: Hashable) -> None:
        """Remove the value of a key, if there is one."""
        if self._values.pop(key, None) is not None:
            self._all_values = None

    def all(self) -> tuple[Value, ...]:
        """Return all values by rank. Returns the same tuple object until the next change."""
        if not self._is_sorted:
            pairs = sorted(self._values.items(), key=lambda pair: self._rank(pair[1]))
            self._values = dict(pairs)
            self._is_sorted = True
        if self._all_values is None:
            self._all_values = tuple(self._values.values())
        return self._all_values


class Tables:
    """State shared by the repositories in memory. Callers of methods and readers hold `lock`."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.jobs: dict[str, JobRecord] = {}
        self.alive_jobs = Shelf(_job_number)
        self.ended_jobs_with_lighthouse = Shelf(_job_number)
        self.instances: dict[str, HeldInstance] = {}
        self.alive_instances = Shelf(_request_order)
        self.given_away: dict[str, list[HeldInstance]] = defaultdict(list)
        self.minimum_billed_seconds: dict[str, int] = {}
        self.intents: dict[int, Intent] = {}
        self.pending_intents = Shelf(_intent_number)
        self.refusals: dict[str, Refusal] = {}
        self.lines: list[LedgerEntry] = []
        self.leases: dict[str, tuple[str, float]] = {}
        self.lost_work: dict[str, list[LostWork]] = defaultdict(list)
        self.last_lines: dict[str, LedgerEntry] = {}
        self._lines_of_instance: dict[str, list[int]] = defaultdict(list)
        self._instances_paid_by_job: dict[str, dict[str, None]] = defaultdict(dict)
        self._ids_of_name: dict[str, list[str]] = defaultdict(list)
        self._instances_of_job: dict[str, Shelf[HeldInstance]] = {}
        self._alive_of_job: dict[str, Shelf[HeldInstance]] = {}
        self._intents_of_instance: dict[str, list[int]] = defaultdict(list)

    def job(self, job: str) -> JobRecord:
        """Return the job with this id.

        Raises:
            UnknownJob: no job has this id.
        """
        record = self.jobs.get(job)
        if record is None:
            raise unknown_job(job, self.jobs)
        return record

    def require_driver(self, study: str | None, driver: str | None) -> None:
        """Check that a driver was the last to take the lease of a study; None: no check.

        Raises:
            Conflict: another driver has taken the lease, or nobody has.
        """
        if driver is not None:
            latest, _ = self.leases.get(study or "", (None, 0.0))
            require_driver(study or "", driver, latest)

    def jobs_named(self, name: str) -> list[JobRecord]:
        """Return all jobs with this name, ended ones included, the oldest first."""
        return [self.jobs[job] for job in self._ids_of_name.get(name, ())]

    def keep_job(self, record: JobRecord) -> None:
        """Store a new or changed job."""
        if record.id not in self.jobs:
            self._ids_of_name[record.spec.name].append(record.id)
            self._instances_of_job[record.id] = Shelf(_request_order)
            self._alive_of_job[record.id] = Shelf(_request_order)
        self.jobs[record.id] = record
        if not record.phase.is_final:
            self.alive_jobs.put(record.id, record)
            return
        self.alive_jobs.remove(record.id)
        if record.lighthouse is not None:
            self.ended_jobs_with_lighthouse.put(record.id, record)
        else:
            self.ended_jobs_with_lighthouse.remove(record.id)

    def instance(self, instance: str) -> HeldInstance:
        """Return the instance with this id.

        Raises:
            UnknownInstance: no instance has this id.
        """
        held = self.instances.get(instance)
        if held is None:
            raise unknown_instance(instance)
        return held

    def instances_of(self, job: str, include_ended: bool) -> tuple[HeldInstance, ...]:
        """Return the instances of one job, by time of request."""
        shelf = (self._instances_of_job if include_ended else self._alive_of_job).get(job)
        return () if shelf is None else shelf.all()

    def keep_instance(self, held: HeldInstance) -> None:
        """Store a new or changed instance."""
        before = self.instances.get(held.id)
        if before is not None and before.job != held.job:
            self.given_away[before.job].append(held)
            self._instances_of_job[before.job].remove(held.id)
            self._alive_of_job[before.job].remove(held.id)
            self.alive_instances.remove(held.id)
        self.instances[held.id] = held
        self._instances_of_job[held.job].put(held.id, held)
        alive_shelves = (self.alive_instances, self._alive_of_job[held.job])
        for shelf in alive_shelves:
            if held.phase is InstancePhase.ENDED:
                shelf.remove(held.id)
            else:
                shelf.put(held.id, held)

    def intents_of(self, instance: str) -> list[Intent]:
        """Return all intents of an instance, the oldest first."""
        return [self.intents[intent] for intent in self._intents_of_instance.get(instance, ())]

    def keep_intent(self, intent: Intent) -> None:
        """Store a new or changed intent; a new one gets the next number."""
        if intent.id == UNNUMBERED:
            intent = replace(intent, id=len(self.intents) + 1)
            self._intents_of_instance[intent.instance].append(intent.id)
        self.intents[intent.id] = intent
        if intent.state is IntentState.PENDING:
            self.pending_intents.put(intent.id, intent)
        else:
            self.pending_intents.remove(intent.id)

    def add_line(self, line: LedgerEntry) -> None:
        """Add a line to the ledger."""
        self._lines_of_instance[line.instance].append(len(self.lines))
        self.lines.append(line)
        self._instances_paid_by_job[line.job][line.instance] = None
        if line.kind is not EntryKind.TRANSFER:
            self.last_lines[line.instance] = line

    def lines_of(self, jobs: Iterable[str]) -> list[LedgerEntry]:
        """Return all lines of the instances that jobs have ever paid for, in order of writing."""
        instances = {held for job in jobs for held in self._instances_paid_by_job.get(job, ())}
        numbers = sorted(
            number for instance in instances for number in self._lines_of_instance[instance]
        )
        return [self.lines[number] for number in numbers]


def _job_number(record: JobRecord) -> int:
    return record.number


def _request_order(held: HeldInstance) -> tuple[float, str]:
    return held.requested_seconds, held.id


def _intent_number(intent: Intent) -> int:
    return intent.id
