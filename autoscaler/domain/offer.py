"""What can be bought, and the limits on buying it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum


class Purchase(StrEnum):
    """On what terms an instance is held.

    An order on flex-start waits in its cloud's queue for capacity. Its instance is not taken back,
    but ends by itself after its longest run.
    """

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    FLEX_START = "flex-start"
    RESERVED = "reserved"

    @property
    def is_at_times(self) -> bool:
        """Whether it is to be expected that there is capacity for it at times only."""
        return self in (Purchase.SPOT, Purchase.FLEX_START)


# Spot prices move within hours, price lists a few times a year, what is paid not at all.
_FRESH_SECONDS = {
    Purchase.SPOT: 6 * 3600.0,
    Purchase.ON_DEMAND: 30 * 86400.0,
    Purchase.FLEX_START: 30 * 86400.0,
    Purchase.RESERVED: math.inf,
}


def is_stale(purchase: Purchase, age_seconds: float | None) -> bool:
    """Whether a price so old is likely not to hold any more; of one of unknown age it is."""
    return age_seconds is None or age_seconds > _FRESH_SECONDS[purchase]


@dataclass(frozen=True, slots=True)
class Offer:
    """Instances of one type, in one zone, on one kind of purchase, at one price.

    What is `reserved` is paid for already and may cost nothing more. A `shared` offer is one
    machine that jobs share: an instance of it is as many of its devices as are used.
    `boot_seconds`, `reclaims_per_hour` (0 but for spot), `fill_seconds` and
    `network_bytes_per_second` are what the provider says; what is measured on real instances takes
    their place, in a snapshot what is believed now. `fill_seconds` is how long an order of now is
    believed to wait for capacity.
    Instances are billed by the started second, at least `minimum_billed_seconds` of them.
    After `until_seconds`, since the Unix epoch, there is no such offer any more. `price_source`
    says where the price is from, if not from the provider itself, and `priced_seconds` of when
    it is; an offer is the same whatever they say. `extras_usd_per_hour` of `usd_per_hour` are for
    what is billed beside the instance as long as it is there, such as its volume and address.
    Instances train together within one `network` only; between two a job moves by its checkpoint.
    `upload_usd_per_gb` is for what such an instance sends to where jobs keep their files, and
    `download_usd_per_gb` for what it fetches from there.
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
    price_source: str = field(default="", compare=False)
    priced_seconds: float | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ValueError(f"offer {self.id}: devices={self.devices}")
        if not self.usd_per_hour > 0 and not self.is_paid:
            raise ValueError(f"offer {self.id}: a price of {self.usd_per_hour} is not used")
        if self.extras_usd_per_hour and not 0 < self.extras_usd_per_hour < self.usd_per_hour:
            raise ValueError(f"offer {self.id}: extras of {self.extras_usd_per_hour} are not used")

    @property
    def is_paid(self) -> bool:
        """It is paid for already, and an instance of it costs nothing more."""
        return self.purchase is Purchase.RESERVED and self.usd_per_hour == 0

    @property
    def usd_per_second(self) -> float:
        """The price of one instance, for the optimiser; the ledger takes `usd_per_hour`."""
        return float(self.usd_per_hour) / 3600.0


class LimitUnit(StrEnum):
    """What a limit counts."""

    DEVICES = "devices"
    INSTANCES = "instances"
    USD_PER_HOUR = "usd_per_hour"


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound that all jobs share: a quota, the capacity that exists, or a fleet budget.

    `offers` are the ids of the offers whose instances count; None counts them all.
    """

    name: str
    unit: LimitUnit
    maximum: float
    offers: frozenset[str] | None = None

    def use(self, offer: Offer) -> float:
        """How much of this limit one instance of `offer` takes."""
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
    """Return what the limits leave beside `held` instances (offer id -> count), at least 0."""
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
