"""State of one project of the fake Google Cloud, and the settings that tests may change."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from autoscaler.clock import Clock
from tests.fakes.faults import Faults
from tests.fakes.gcp import geography
from tests.fakes.gcp.event_queue import EventQueue

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sent:
    """Received call."""

    action: str
    parameters: dict[str, Any]
    body: Body


@dataclass(slots=True, eq=False)
class Operation:
    """Operation of a call. `scope` is ``zones/Z``, ``regions/R`` or ``global``."""

    name: str
    id: str
    scope: str
    kind: str
    target: str
    target_id: str
    user: str
    insert_seconds: float
    start_seconds: float
    end_seconds: float | None = None
    error: Body | None = None
    others: Body = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Instance:
    """Instance. `body` is the request merged with its template.

    Attributes:
        purchase: the provisioning model.
        ended_seconds: time at which the end was requested or began; the end may take longer.
        preempted_seconds: time of the first notice by the metadata server.
    """

    name: str
    zone: str
    id: str
    kind: str
    purchase: str
    body: Body
    created_seconds: float
    insert: Operation
    status: str = "PROVISIONING"
    running_seconds: float | None = None
    ended_seconds: float | None = None
    preempted_seconds: float | None = None
    stopped_seconds: float | None = None
    is_gone: bool = False
    address: str = ""
    changes: int = 0


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """First use of a request id."""

    asked: Any
    operation: Operation
    seconds: float


@dataclass(slots=True, eq=False)
class Project:
    """State of one project.

    Attributes:
        capacity: instances left by machine type, zone and provisioning model; a key that is
            missing means no limit.
        reservations: reserved capacity of the project, by zone and name.
        quotas: limits by region, or ``global``, and metric; a missing metric has no limit.
        quota_in_operation: whether a small quota fails the operation, not the call.
        stockout: error code for lack of capacity.
        offered: machine types of each zone.
        unreachable: zones that do not answer.
        lag_seconds: time until lists and other calls show a new instance.
        pending_seconds: time until an operation begins.
        provision_seconds: time from an insert until its capacity is decided.
        staging_seconds: time from then until the instance runs and the operation is done.
        delete_seconds: time that an instance takes to stop or to be deleted.
        notice_seconds: time from the ACPI signal of a preemption until the stop.
        request_seconds: time for which a request id is remembered.
        wait_seconds: longest wait for an operation in one call; the real API may answer at once.
        page: largest size of a page; None leaves the size to the caller.
        roles: permissions of custom roles, ``projects/P/roles/R``.
        permissions: permissions of callers in the project, of those that the fake checks.
        prices: prices of SKUs by description, where they differ from the usual ones.
        tables: tables for queries, by ``PROJECT.DATASET.TABLE``.
        query_polls: polls of a query before it is complete.
        signer: signer of the instances' identity tokens; None means Google's.
    """

    id: str
    number: str
    clock: Clock
    faults: Faults = field(default_factory=Faults)
    capacity: dict[tuple[str, str, str], int] = field(default_factory=dict)
    quotas: dict[tuple[str, str], float] = field(default_factory=geography.quotas)
    quota_in_operation: bool = False
    stockout: str = "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
    offered: dict[str, set[str]] = field(default_factory=geography.offered)
    unreachable: set[str] = field(default_factory=set)
    lag_seconds: float = 0.0
    pending_seconds: float = 0.5
    provision_seconds: float = 2.0
    staging_seconds: float = 3.0
    delete_seconds: float = 5.0
    notice_seconds: float = 30.0
    request_seconds: float = 3600.0
    wait_seconds: float = 120.0
    page: int | None = None
    calls: Counter[str] = field(default_factory=Counter)
    sent: list[Sent] = field(default_factory=list)
    instances: dict[tuple[str, str], Instance] = field(default_factory=dict)
    history: list[Instance] = field(default_factory=list)
    operations: dict[str, Operation] = field(default_factory=dict)
    requests: dict[str, KnownRequest] = field(default_factory=dict)
    templates: dict[str, Body] = field(default_factory=dict)
    policies: dict[tuple[str, str], Body] = field(default_factory=dict)
    reservations: dict[tuple[str, str], Any] = field(default_factory=dict)
    subscriptions: dict[str, Any] = field(default_factory=dict)
    buckets: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, Any] = field(default_factory=dict)
    roles: dict[str, set[str]] = field(default_factory=dict)
    permissions: set[str] = field(default_factory=set)
    prices: dict[str, Decimal] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)
    query_polls: int = 0
    queries: dict[str, Any] = field(default_factory=dict)
    signer: Any = None
    events: EventQueue = field(default_factory=EventQueue)
    most_alive: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def now(self) -> float:
        """Return the project's time, after all events that are due by then."""
        now = self.clock.now()
        with self.lock:
            self.events.run_until(now)
        return now

    def alive(self) -> list[str]:
        """Return the names of billed instances that nobody has ended, listed or not."""
        return sorted(
            instance.name for instance in self._existing() if instance.ended_seconds is None
        )

    def remaining(self) -> list[str]:
        """Return the names of all existing instances, including stopped and ending ones."""
        return sorted(instance.name for instance in self._existing())

    def of(self, action: str) -> list[Sent]:
        """Return all received calls of an action."""
        return [sent for sent in self.sent if sent.action == action]

    def instance(self, name: str) -> Instance:
        """Return the existing instance of this name.

        Raises:
            KeyError: there is none.
        """
        for instance in self._existing():
            if instance.name == name:
                return instance
        raise KeyError(name)

    def is_hidden(self, instance: Instance) -> bool:
        """Return whether lists do not show an instance yet."""
        return self.clock.now() < instance.created_seconds + self.lag_seconds

    def next_number(self) -> int:
        return next(self._numbers)

    def next_id(self) -> str:
        """Return a resource id of 19 digits, as in Compute Engine."""
        return str(4_000_000_000_000_000_000 + next(self._numbers) * 7919)

    def count(self) -> None:
        """Record the largest number of instances alive at once."""
        self.most_alive = max(self.most_alive, len(self.alive()))

    def _existing(self) -> list[Instance]:
        with self.lock:
            self.now()
            return list(self.instances.values())


def timestamp(seconds: float) -> str:
    """Format a time as Compute Engine does: in Pacific time, with the offset."""
    moment = datetime.fromtimestamp(seconds, timezone(timedelta(hours=-7)))
    return moment.isoformat(timespec="milliseconds")


def utc_timestamp(seconds: float) -> str:
    """Format a time as all other APIs do."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
