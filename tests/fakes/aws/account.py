"""One account of the fake AWS: what moto lacks of EC2, and what a test may turn."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from autoscaler.clock import Clock
from tests.fakes.aws.billing import Bill
from tests.fakes.aws.faults import Faults
from tests.fakes.aws.reservations import FakeBlock, FakeReservation

Parameters = Mapping[str, str]

# On-demand, in us-east-1; spot is cheaper by zone.
LIST_PRICES = {
    "p3.2xlarge": "3.06",
    "g4dn.xlarge": "0.526",
    "g5.xlarge": "1.006",
    "g5.12xlarge": "5.672",
    "p5.48xlarge": "55.04",
}
SPOT_SHARES = {"us-east-1a": "0.31", "us-east-1b": "0.42", "us-east-1c": "0.37"}
QUOTAS = {
    ("Running On-Demand G and VT instances", "L-DB2E81BA"): 768.0,
    ("Running On-Demand P instances", "L-417A185B"): 384.0,
    ("All G and VT Spot Instance Requests", "L-3819A6DF"): 384.0,
    ("All P4, P3 and P2 Spot Instance Requests", "L-7212CCBC"): 64.0,
    ("All P5 Spot Instance Requests", "L-C4BD4855"): 192.0,
    ("EC2-VPC Elastic IPs", "L-0263D0A3"): 5.0,
}


def spot_prices() -> dict[tuple[str, str], Decimal]:
    """By type and zone."""
    return {
        (kind, zone): (Decimal(usd) * Decimal(share)).quantize(Decimal("0.0001"))
        for kind, usd in LIST_PRICES.items()
        for zone, share in SPOT_SHARES.items()
    }


@dataclass(frozen=True, slots=True)
class KnownFleet:
    """What was answered to a client token."""

    parameters: Parameters
    body: bytes
    instances: tuple[str, ...]


@dataclass(slots=True)
class Account:
    """The state of one account.

    Attributes:
        capacity: how many more instances of a type, zone and purchase there are; None of one that
            is not named: as many as are wanted.
        lag_seconds: for so long lists and other calls do not know a new instance.
        boot_seconds: for so long a new instance is pending.
        page: the most that one reply lists; None leaves it to the caller.
        other_prices: prices of further products of a type, which are listed before its price.
        repeats_token: whether every page of quotas and products names itself as the next page.
        has_spot_role: whether the account has the service-linked role of spot instances. A new
            account has none, and EC2 may not create it for a role without permission to.
        forgets_ended: EC2 answers the token of an ended instance with an error.
        priced_regions: those that the price list has.
        reservations: capacity that the account has reserved, by id.
        blocks: Capacity Blocks that it may buy, by id of the offering.
        zones: those that have every type of the price list.
    """

    number: str
    clock: Clock
    faults: Faults = field(default_factory=Faults)
    capacity: dict[tuple[str, str, str], int] = field(default_factory=dict)
    spot_prices: dict[tuple[str, str], Decimal] = field(default_factory=spot_prices)
    list_prices: dict[str, str] = field(default_factory=lambda: dict(LIST_PRICES))
    other_prices: dict[str, list[str]] = field(default_factory=dict)
    quotas: dict[tuple[str, str], float] = field(default_factory=lambda: dict(QUOTAS))
    lag_seconds: float = 0.0
    boot_seconds: float = 0.0
    page: int | None = None
    repeats_token: bool = False
    has_spot_role: bool = True
    forgets_ended: bool = False
    priced_regions: set[str] = field(default_factory=lambda: {"us-east-1"})
    zones: list[str] = field(default_factory=lambda: list(SPOT_SHARES))
    reservations: dict[str, FakeReservation] = field(default_factory=dict)
    blocks: dict[str, FakeBlock] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    sent: list[tuple[str, Parameters]] = field(default_factory=list)
    fleets: dict[str, KnownFleet] = field(default_factory=dict)
    launched_seconds: dict[str, float] = field(default_factory=dict)
    ended_seconds: dict[str, float] = field(default_factory=dict)
    reclaimed: set[str] = field(default_factory=set)
    most_alive: int = 0
    bill: Bill = field(default_factory=Bill)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def is_hidden(self, instance_id: str) -> bool:
        """Whether EC2's lists do not know it yet."""
        return self._age_seconds(instance_id) < self.lag_seconds

    def is_pending(self, instance_id: str) -> bool:
        """Whether it has not booted."""
        return self._age_seconds(instance_id) < self.boot_seconds

    def alive(self) -> list[str]:
        """All that is paid for, whoever launched it, whether lists show it or not."""
        with self.lock:
            return sorted(self.launched_seconds.keys() - self.ended_seconds.keys())

    def has_launched(self, instance_ids: tuple[str, ...]) -> None:
        with self.lock:
            for instance_id in instance_ids:
                self.launched_seconds.setdefault(instance_id, self.clock.now())
            self.most_alive = max(self.most_alive, len(self.alive()))

    def has_ended(self, instance_id: str) -> None:
        with self.lock:
            self.ended_seconds.setdefault(instance_id, self.clock.now())

    def of(self, action: str) -> list[Parameters]:
        """The parameters of every such call that came in."""
        return [parameters for name, parameters in self.sent if name == action]

    def _age_seconds(self, instance_id: str) -> float:
        launched_seconds = self.launched_seconds.get(instance_id)
        return 1e9 if launched_seconds is None else self.clock.now() - launched_seconds
