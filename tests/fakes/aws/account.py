"""State of one account of the fake AWS, beside moto's, and the settings that tests may change."""

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

# US dollars an hour on demand in us-east-1. Spot costs a share of it, by zone.
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
    """Return spot prices in US dollars an hour, by type and zone."""
    return {
        (kind, zone): (Decimal(usd) * Decimal(share)).quantize(Decimal("0.0001"))
        for kind, usd in LIST_PRICES.items()
        for zone, share in SPOT_SHARES.items()
    }


@dataclass(frozen=True, slots=True)
class KnownFleet:
    """First answer to a client token."""

    parameters: Parameters
    body: bytes
    instances: tuple[str, ...]


@dataclass(slots=True)
class Account:
    """State of one account.

    Attributes:
        capacity: instances left by type, zone and purchase; a missing key means no limit.
        lag_seconds: time until lists and other calls show a new instance.
        boot_seconds: time for which a new instance is pending.
        page: largest size of a page; None leaves the size to the caller.
        other_prices: prices of further products of a type, listed before the type's price.
        repeats_token: whether every page of quotas and products names itself as the next page.
        has_spot_role: whether the account has the service-linked role of spot instances. A new
            account has none, and EC2 can't create it for a role without permission to.
        forgets_ended: whether EC2 answers the token of an ended instance with an error.
        priced_regions: regions of the price list.
        reservations: reserved capacity of the account, by id.
        blocks: Capacity Blocks for sale, by id of the offering.
        zones: zones that have every type of the price list.
        spot_scores: spot placement scores by the id of the zone.
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
    spot_scores: dict[str, int] = field(
        default_factory=lambda: {"use1-az6": 9, "use1-az1": 3, "use1-az4": 10}
    )
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
        """Return whether EC2's lists do not show an instance yet."""
        return self._age_seconds(instance_id) < self.lag_seconds

    def is_pending(self, instance_id: str) -> bool:
        """Return whether an instance has not booted."""
        return self._age_seconds(instance_id) < self.boot_seconds

    def alive(self) -> list[str]:
        """Return all billed instances, listed or not."""
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
        """Return the parameters of all received calls of an action."""
        return [parameters for name, parameters in self.sent if name == action]

    def _age_seconds(self, instance_id: str) -> float:
        launched_seconds = self.launched_seconds.get(instance_id)
        return 1e9 if launched_seconds is None else self.clock.now() - launched_seconds
