"""Offers of instances that can be bought, and the limits that jobs share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum


class Purchase(StrEnum):
    """Purchase model of an instance.

    A flex-start order waits in its cloud's queue for capacity. The cloud does not reclaim its
    instance, but ends it after its longest run.
    """

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    FLEX_START = "flex-start"
    RESERVED = "reserved"

    @property
    def is_at_times(self) -> bool:
        """Whether capacity for this purchase model is expected at times only."""
        return self in (Purchase.SPOT, Purchase.FLEX_START)


# Longest age of a valid price: spot prices move within hours, price lists a few times a year.
_FRESH_SECONDS = {
    Purchase.SPOT: 6 * 3600.0,
    Purchase.ON_DEMAND: 30 * 86400.0,
    Purchase.FLEX_START: 30 * 86400.0,
    Purchase.RESERVED: math.inf,
}


def is_stale(purchase: Purchase, age_seconds: float | None) -> bool:
    """Return whether a price is probably out of date; true if its age is None (unknown)."""
    return age_seconds is None or age_seconds > _FRESH_SECONDS[purchase]


@dataclass(frozen=True, slots=True)
class Offer:
    """Instances of one type in one zone, under one purchase model, at one price.

    A `reserved` offer is paid for already and may cost nothing more, or its extras only. A
    `shared` offer is one machine that jobs share; its instances are the devices in use.

    `boot_seconds`, `reclaims_per_hour` (0 but for spot), `fill_seconds` and
    `network_bytes_per_second` come from the provider; measurements replace them in a snapshot.
    `fill_seconds` is the expected time that a new order waits for capacity.

    Instances are billed by the started second, at least `minimum_billed_seconds`. The offer ends
    at `until_seconds`, since the Unix epoch. `price_source` names the source of a price that is
    not the provider's own, and `priced_seconds` is the time of the price; neither affects
    equality. `extras_usd_per_hour`, a part of `usd_per_hour`, is billed beside the instance while
    it exists, such as for its volume and address.

    One order may name several offers of one `order_group`, which differ in zone, price and
    reclaims only; empty: an order names this offer alone.

    `join_seconds` is the longest time from capacity to the agent's join, after which the instance
    is given up; None leaves it to the controller.

    Instances train together within one `network` only; a job moves between networks by a
    checkpoint. `upload_usd_per_gb` is the price of sending to the storage of jobs' files, and
    `download_usd_per_gb` the price of fetching from there.
    """

    id: str
    provider: str
    instance_type: str
    zone: str
    purchase: Purchase
    devices: int
    device_kind: str
    usd_per_hour: Decimal
    boot_seconds: float
    network_bytes_per_second: float
    reclaims_per_hour: float = 0.0
    minimum_billed_seconds: int = 0
    shared: bool = False
    fill_seconds: float = 0.0
    until_seconds: float | None = None
    extras_usd_per_hour: Decimal = Decimal(0)
    network: str = ""
    upload_usd_per_gb: Decimal = Decimal(0)
    download_usd_per_gb: Decimal = Decimal(0)
    join_seconds: float | None = None
    order_group: str = ""
    price_source: str = field(default="", compare=False)
    priced_seconds: float | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ValueError(f"offer {self.id}: devices={self.devices}")
        if not self.usd_per_hour > 0 and not self.is_paid:
            raise ValueError(f"offer {self.id}: usd_per_hour={self.usd_per_hour} must be above 0")
        if self.extras_usd_per_hour and not (
            0 < self.extras_usd_per_hour < self.usd_per_hour
            or (self.is_paid and self.extras_usd_per_hour > 0)
        ):
            raise ValueError(
                f"offer {self.id}: extras_usd_per_hour={self.extras_usd_per_hour} must be "
                "above 0 and below usd_per_hour, which a paid instance's extras may equal"
            )

    @property
    def is_paid(self) -> bool:
        """Whether the offer is paid for already and its instances cost no more than extras."""
        return self.purchase is Purchase.RESERVED and self.usd_per_hour == self.extras_usd_per_hour

    @property
    def is_cpu(self) -> bool:
        """Whether the devices are CPU cores."""
        return self.device_kind.startswith("cpu")

    @property
    def usd_per_second(self) -> float:
        """Price of one instance for the optimiser; the ledger uses `usd_per_hour`."""
        return float(self.usd_per_hour) / 3600.0


class LimitUnit(StrEnum):
    """Unit in which a limit counts."""

    DEVICES = "devices"
    INSTANCES = "instances"
    USD_PER_HOUR = "usd_per_hour"


@dataclass(frozen=True, slots=True)
class Limit:
    """Upper bound that all jobs share: a quota, existing capacity, or the price of all instances.

    `offers` are the ids of the offers whose instances count; None counts all offers. `place` says
    where the maximum is set, for people; it does not affect equality.
    """

    name: str
    unit: LimitUnit
    maximum: float
    offers: frozenset[str] | None = None
    place: str = field(default="", compare=False)

    def use(self, offer: Offer) -> float:
        """Return the amount of this limit that one instance of `offer` uses, in its unit."""
        if self.offers is not None and offer.id not in self.offers:
            return 0.0
        match self.unit:
            case LimitUnit.DEVICES:
                return float(offer.devices)
            case LimitUnit.INSTANCES:
                return 1.0
            case LimitUnit.USD_PER_HOUR:
                return float(offer.usd_per_hour)


def limits_beside(
    limits: Iterable[Limit], offers: Iterable[Offer], held: Mapping[str, int]
) -> tuple[Limit, ...]:
    """Return the limits less the use of `held` instances (offer id -> count), at least 0."""
    of_offers = {offer.id: offer for offer in offers if offer.id in held}
    return tuple(
        replace(
            limit,
            maximum=max(
                limit.maximum
                - sum(limit.use(offer) * held[offer_id] for offer_id, offer in of_offers.items()),
                0.0,
            ),
        )
        for limit in limits
    )
