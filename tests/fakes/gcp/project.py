"""One project of the fake Google Cloud: what is in it, and what a test may turn."""

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
from tests.fakes.gcp.agenda import Agenda

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sent:
    """One call as it came in."""

    action: str
    parameters: dict[str, Any]
    body: Body


@dataclass(slots=True, eq=False)
class Operation:
    """What a call began. `scope` is ``zones/Z``, ``regions/R`` or ``global``."""

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
    """One instance. `body` is what it was made from, its template included.

    Attributes:
        purchase: its provisioning model.
        ended_seconds: since when nobody wants it any more, however long it takes to vanish.
        preempted_seconds: when its metadata server first told of it.
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
    """What a request id was first used for."""

    asked: Any
    operation: Operation
    seconds: float


@dataclass(slots=True, eq=False)
class Project:
    """The state of one project.

    Attributes:
        capacity: how many more instances of a machine type, zone and provisioning model there
            are; None of one that is not named: as many as are wanted.
        reservations: capacity that the project has reserved, by zone and name.
        quotas: limits by region, or ``global``, and metric. What is not named has no limit.
        quota_in_operation: a quota is found to be too small only while the operation runs.
        stockout: the code that a lack of capacity is told with.
        offered: the machine types of each zone.
        unreachable: zones that do not answer.
        lag_seconds: for so long lists and other calls do not know a new instance.
        pending_seconds: for so long an operation has not begun.
        provision_seconds: from an insert until it is known whether there is capacity.
        staging_seconds: from then until the instance runs, and the operation is done.
        delete_seconds: how long an instance takes to stop or to vanish.
        notice_seconds: from the ACPI signal of a preemption until the instance is stopped.
        request_seconds: for so long a request id is known again.
        wait_seconds: the longest that a wait for an operation lets pass; the real one may answer
            after none at all.
        page: the most that one reply lists; None leaves it to the caller.
        roles: the permissions of roles of one's own, ``projects/P/roles/R``.
        permissions: what callers may do in the project, of what is asked for here at all.
        prices: what SKUs cost that cost something else than usually, by their description.
        tables: what queries that it pays for may read, by ``PROJECT.DATASET.TABLE``.
        query_looks: so often a query is looked at before it is complete.
        signer: whose signature is under the identity tokens of its instances, if not Google's.
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
    query_looks: int = 0
    queries: dict[str, Any] = field(default_factory=dict)
    signer: Any = None
    agenda: Agenda = field(default_factory=Agenda)
    most_alive: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def now(self) -> float:
        """The project's time; all that is due by then has happened."""
        now = self.clock.now()
        with self.lock:
            self.agenda.pass_until(now)
        return now

    def alive(self) -> list[str]:
        """The names of all that is paid for and that nobody has ended, whether it is listed."""
        return sorted(one.name for one in self._existing() if one.ended_seconds is None)

    def remaining(self) -> list[str]:
        """The names of all that there is, stopped ones and those on their way out included."""
        return sorted(one.name for one in self._existing())

    def of(self, action: str) -> list[Sent]:
        """Every such call that came in."""
        return [sent for sent in self.sent if sent.action == action]

    def instance(self, name: str) -> Instance:
        """The one of this name, if it still exists.

        Raises:
            KeyError: it does not.
        """
        for one in self._existing():
            if one.name == name:
                return one
        raise KeyError(name)

    def is_hidden(self, instance: Instance) -> bool:
        """Whether nobody is told of it yet."""
        return self.clock.now() < instance.created_seconds + self.lag_seconds

    def next_number(self) -> int:
        return next(self._numbers)

    def next_id(self) -> str:
        """As the ids of resources are: 19 digits."""
        return str(4_000_000_000_000_000_000 + next(self._numbers) * 7919)

    def count(self) -> None:
        """Note how much there is at once."""
        self.most_alive = max(self.most_alive, len(self.alive()))

    def _existing(self) -> list[Instance]:
        with self.lock:
            self.now()
            return list(self.instances.values())


def written(seconds: float) -> str:
    """A moment as Compute Engine writes it: by the clocks of California, and saying so."""
    moment = datetime.fromtimestamp(seconds, timezone(timedelta(hours=-7)))
    return moment.isoformat(timespec="milliseconds")


def written_in_utc(seconds: float) -> str:
    """A moment as all the other APIs write it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
