"""True state of two clouds: machines, bills, prices, capacity, stored user data and messages.

The fake clients of `aws` and `gcp` answer from it. A controller sees it only through replies,
which may be lost, late, stale or wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from autoscaler.domain.instance import CONTROLLER_TAG, INSTANCE_TAG, JOB_TAG
from autoscaler.ledger.bill import amount
from providers.cloud.tags import TOKEN_TAG
from tests.dst.scheduler import Scheduler

MINIMUM_BILLED_SECONDS: Final = 60
LISTED_SECONDS: Final = 3600  # EC2 lists an ended instance for an hour
Place = tuple[str, str, str]
"""Cloud, instance type and zone."""

ON_DEMAND: Final[Mapping[tuple[str, str], Decimal]] = {
    ("aws", "g4dn.xlarge"): Decimal("0.526"),
    ("aws", "g5.xlarge"): Decimal("1.006"),
    ("gcp", "g2-standard-4"): Decimal("0.71"),
    ("gcp", "g2-standard-8"): Decimal("0.86"),
}
ZONES: Final[Mapping[str, tuple[str, ...]]] = {
    "aws": ("us-east-1a", "us-east-1b"),
    "gcp": ("us-central1-a", "us-central1-b"),
}


@dataclass(eq=False)
class Machine:
    """Billed machine, from its creation. Times are true seconds since the Unix epoch.

    `answered_seconds` is when the last reply to the launch on EC2 arrived; 0 if none did.
    `is_resting` is True for a machine that has stopped and stays listed until it is deleted, as
    Compute Engine does after an error of the host and after a shutdown of the guest.
    """

    id: str
    cloud: str
    kind: str
    zone: str
    purchase: str
    tags: Mapping[str, str]
    usd_per_hour: Decimal
    launched_seconds: int
    running_seconds: int
    visible_seconds: int
    user_data_key: str
    ended_seconds: int | None = None
    gone_seconds: int | None = None
    reclaim_seconds: int | None = None
    is_reclaimed: bool = False
    has_known_end: bool = True
    is_resting: bool = False
    name: str = ""
    ended_by: str = ""
    answered_seconds: int = 0
    notice_seconds: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def token(self) -> str:
        """Token of the launch request."""
        return self.tags[TOKEN_TAG]

    @property
    def instance(self) -> str:
        """Id that the controller gave the instance."""
        return self.tags[INSTANCE_TAG]

    @property
    def job(self) -> str:
        """Job for which the machine was launched."""
        return self.tags[JOB_TAG]

    @property
    def offer(self) -> str:
        """Id of the offer of which the cloud launched it."""
        return f"gpu/{self.kind}/{self.zone}/{self.purchase}"

    @property
    def is_billed(self) -> bool:
        """Whether the machine costs money now."""
        return self.ended_seconds is None

    def is_running(self, now_seconds: int) -> bool:
        """Return whether the machine has booted and not ended."""
        return self.is_billed and now_seconds >= self.running_seconds

    def billed_usd(self, now_seconds: int) -> Decimal:
        """Return the bill until now in US dollars, at the price of the launch."""
        until_seconds = now_seconds if self.ended_seconds is None else self.ended_seconds
        seconds = until_seconds - self.launched_seconds
        return amount(self.usd_per_hour, seconds, MINIMUM_BILLED_SECONDS)


@dataclass
class CloudTruth:
    """All machines that ever were, and what the clouds know beside them.

    `spot` has the spot price by place. `closed` maps (cloud, zone) to the time until which it
    launches nothing. `lag_seconds` is the time for which lists omit a new machine, `boot_seconds`
    the time from launch to running. `messages` are notices in the cloud's queue.
    """

    scheduler: Scheduler
    machines: dict[str, Machine] = field(default_factory=dict)
    spot: dict[Place, Decimal] = field(default_factory=dict)
    spot_text: dict[Place, str] = field(default_factory=dict)
    closed: dict[tuple[str, str], int] = field(default_factory=dict)
    quota: dict[str, int] = field(default_factory=lambda: {"aws": 40, "gcp": 40})
    objects: dict[str, str] = field(default_factory=dict)
    messages: dict[str, list[tuple[int, str, str]]] = field(
        default_factory=lambda: {"aws": [], "gcp": []}
    )
    lag_seconds: int = 0
    boot_seconds: int = 40
    end_lag_seconds: int = 5
    price_changes: set[Place] = field(default_factory=set)
    created: int = 0
    memory: dict[str, Any] = field(default_factory=dict)
    on_create: Callable[[Machine, bool], None] = lambda machine, is_second: None
    _used: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for (cloud, kind), usd in ON_DEMAND.items():
            for number, zone in enumerate(ZONES[cloud]):
                # Google's spot prices are those of a region.
                share = Decimal("0.4") + Decimal("0.05") * (number if cloud == "aws" else 0)
                self.spot[cloud, kind, zone] = (usd * share).quantize(Decimal("0.0001"))

    @property
    def now_seconds(self) -> int:
        """True time."""
        return self.scheduler.now_seconds

    def price(self, cloud: str, kind: str, zone: str, purchase: str) -> Decimal:
        """Return the present price in US dollars an hour."""
        if purchase == "spot":
            return self.spot[cloud, kind, zone]
        return ON_DEMAND[cloud, kind]

    def has_capacity(self, cloud: str, zone: str) -> bool:
        """Return whether a launch in the zone would succeed."""
        return self.now_seconds >= self.closed.get((cloud, zone), 0)

    def is_over_quota(self, cloud: str) -> bool:
        """Return whether the account has no room for another machine."""
        return len([m for m in self.billed() if m.cloud == cloud]) >= self.quota[cloud]

    def create(
        self,
        place: Place,
        purchase: str,
        tags: Mapping[str, str],
        key: str,
        name: str = "",
    ) -> Machine:
        """Create and return a machine; `on_create` learns whether its token was used before."""
        cloud, kind, zone = place
        self.created += 1
        machine = Machine(
            id=(name and f"{zone}/{name}") or f"i-{self.created:017x}",
            cloud=cloud,
            kind=kind,
            zone=zone,
            purchase=purchase,
            tags=dict(tags),
            usd_per_hour=self.price(cloud, kind, zone, purchase),
            launched_seconds=self.now_seconds,
            running_seconds=self.now_seconds + self.boot_seconds,
            visible_seconds=self.now_seconds + self.lag_seconds,
            user_data_key=key,
            name=name,
        )
        self.on_create(machine, bool({machine.token, machine.instance} & self._used))
        self._used |= {machine.token, machine.instance}
        self.machines[machine.id] = machine
        return machine

    def rest(self, machine: Machine) -> None:
        """Stop a machine now; its bill stops, and its disk stays until it is deleted."""
        if machine.is_billed:
            self.end(machine)
            machine.gone_seconds = None
            machine.is_resting = True

    def delete(self, machine: Machine) -> None:
        """Delete a machine that rests."""
        machine.is_resting = False
        machine.gone_seconds = self.now_seconds + self.end_lag_seconds

    def end(self, machine: Machine, is_reclaimed: bool = False, by: str = "cloud") -> None:
        """End a machine now; its bill stops. `by` is "user" for a call of a controller."""
        if machine.ended_seconds is not None:
            return
        machine.ended_by = by
        machine.ended_seconds = self.now_seconds
        machine.gone_seconds = self.now_seconds + self.end_lag_seconds
        machine.is_reclaimed = is_reclaimed

    def billed(self) -> Iterator[Machine]:
        """Yield all machines that cost money now."""
        return (machine for machine in self.machines.values() if machine.is_billed)

    def of_controller(self, cloud: str, controller: str) -> list[Machine]:
        """Return all machines of a cloud with the tag of a controller."""
        return [
            machine
            for machine in self.machines.values()
            if machine.cloud == cloud and machine.tags.get(CONTROLLER_TAG) == controller
        ]

    def pass_time(self) -> None:
        """End the machines whose reclaim is due."""
        for machine in list(self.billed()):
            due_seconds = machine.reclaim_seconds
            if due_seconds is not None and due_seconds <= self.now_seconds:
                self.end(machine, is_reclaimed=True)
