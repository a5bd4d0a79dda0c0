"""Jobs, instances, intents and lines of the ledger in memory, with their indexes.

All values are frozen: a change puts a new one in the place of the old one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import replace
from threading import Lock
from typing import Any, Generic, TypeVar

from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.intent import Intent, IntentState
from autoscaler.domain.job import JobRecord
from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.store.capacity import Refusal
from autoscaler.store.holding import UNNUMBERED
from autoscaler.store.instances import unknown_instance
from autoscaler.store.jobs import unknown_job

Value = TypeVar("Value")


class Shelf(Generic[Value]):
    """Values by their keys, in the order of `rank`, which must not change for a key."""

    def __init__(self, rank: Callable[[Value], Any]) -> None:
        self._rank = rank
        self._values: dict[Hashable, Value] = {}
        self._is_in_order = True
        self._all: tuple[Value, ...] | None = ()

    def put(self, key: Hashable, value: Value) -> None:
        """Put a value in the place of the one of that key, or beside the others."""
        if key not in self._values:
            self._is_in_order = False
        self._values[key] = value
        self._all = None

    def remove(self, key: Hashable) -> None:
        """Take away the value of that key, if there is one."""
        if self._values.pop(key, None) is not None:
            self._all = None

    def all(self) -> tuple[Value, ...]:
        """All values. The tuple is kept until the next change."""
        if not self._is_in_order:
            pairs = sorted(self._values.items(), key=lambda pair: self._rank(pair[1]))
            self._values = dict(pairs)
            self._is_in_order = True
        if self._all is None:
            self._all = tuple(self._values.values())
        return self._all


class Tables:
    """What the repositories in memory share. Whoever calls a method, or reads, holds `lock`."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.jobs: dict[str, JobRecord] = {}
        self.alive_jobs = Shelf(_number)
        self.ended_jobs_with_lighthouse = Shelf(_number)
        self.instances: dict[str, HeldInstance] = {}
        self.alive_instances = Shelf(_request)
        self.given_away: dict[str, list[HeldInstance]] = defaultdict(list)
        self.minimum_billed_seconds: dict[str, int] = {}
        self.intents: dict[int, Intent] = {}
        self.pending_intents = Shelf(_id)
        self.refusals: dict[str, Refusal] = {}
        self.lines: list[LedgerEntry] = []
        self.last_lines: dict[str, LedgerEntry] = {}
        self._lines_of_instance: dict[str, list[int]] = defaultdict(list)
        self._paid_by_job: dict[str, dict[str, None]] = defaultdict(dict)
        self._ids_of_name: dict[str, list[str]] = defaultdict(list)
        self._instances_of_job: dict[str, Shelf[HeldInstance]] = {}
        self._alive_of_job: dict[str, Shelf[HeldInstance]] = {}
        self._intents_of_instance: dict[str, list[int]] = defaultdict(list)

    def job(self, job: str) -> JobRecord:
        """The job of that id, or `UnknownJob`."""
        record = self.jobs.get(job)
        if record is None:
            raise unknown_job(job, self.jobs)
        return record

    def jobs_named(self, name: str) -> list[JobRecord]:
        """All jobs there were of a name, the oldest first."""
        return [self.jobs[job] for job in self._ids_of_name.get(name, ())]

    def keep_job(self, record: JobRecord) -> None:
        """Keep a job, new or changed."""
        if record.id not in self.jobs:
            self._ids_of_name[record.spec.name].append(record.id)
            self._instances_of_job[record.id] = Shelf(_request)
            self._alive_of_job[record.id] = Shelf(_request)
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
        """The instance of that id, or `UnknownInstance`."""
        held = self.instances.get(instance)
        if held is None:
            raise unknown_instance(instance)
        return held

    def instances_of(self, job: str, include_ended: bool) -> tuple[HeldInstance, ...]:
        """The instances of one job, in the order of their requests."""
        shelf = (self._instances_of_job if include_ended else self._alive_of_job).get(job)
        return () if shelf is None else shelf.all()

    def keep_instance(self, held: HeldInstance) -> None:
        """Keep an instance, new or changed."""
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
        """All intents of an instance, the oldest first."""
        return [self.intents[intent] for intent in self._intents_of_instance.get(instance, ())]

    def keep_intent(self, intent: Intent) -> None:
        """Keep an intent, which is numbered if it is new."""
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
        self._paid_by_job[line.job][line.instance] = None
        if line.kind is not EntryKind.TRANSFER:
            self.last_lines[line.instance] = line

    def lines_of(self, job: str) -> list[LedgerEntry]:
        """The lines of the instances that a job has ever paid for, in order."""
        paid = self._paid_by_job.get(job, ())
        numbers = sorted(n for instance in paid for n in self._lines_of_instance[instance])
        return [self.lines[number] for number in numbers]


def _number(record: JobRecord) -> int:
    return record.number


def _request(held: HeldInstance) -> tuple[float, str]:
    return held.requested_seconds, held.id


def _id(intent: Intent) -> int:
    return intent.id
