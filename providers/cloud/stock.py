"""What is sold of a cloud's pools at the prices of now, and why the rest is not."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Generic, Protocol, TypeVar

from autoscaler.domain.offer import Offer, Purchase
from autoscaler.market import queues
from autoscaler.market.catalogue import MINIMUM_BILLED_SECONDS
from autoscaler.market.egress import network_of
from autoscaler.market.prices import Price, RefusedPrice
from providers.cloud.sales import PoolBounds, Sale

_log = logging.getLogger(__name__)

# Clouds do not tell; what is seen takes its place.
_USUAL_RECLAIMS_PER_HOUR: Final = 0.2
_BOUGHT: Final = frozenset(one.value for one in Purchase) - {Purchase.RESERVED.value}


class PoolTerms(PoolBounds, Protocol):
    """One pool of the settings, and how its instances are bought."""

    @property
    def purchases(self) -> Sequence[Purchase]:
        """The terms on which they are."""
        ...

    @property
    def boot(self) -> float:
        """Seconds from a launch until an instance can work."""
        ...

    @property
    def extras_usd_per_hour(self) -> Decimal:
        """What is billed beside each."""
        ...


class Kind(Protocol):
    """A type as its cloud tells of it."""

    @property
    def name(self) -> str:
        """As the catalogue names it."""
        ...

    @property
    def devices(self) -> int:
        """How many it has."""
        ...

    @property
    def device_kind(self) -> str:
        """Of which kind they are."""
        ...

    @property
    def network_bytes_per_second(self) -> float:
        """What one can send to others."""
        ...

    @property
    def zones(self) -> frozenset[str]:
        """Where it is to be had."""
        ...


Pool = TypeVar("Pool", bound=PoolTerms)
SomeKind = TypeVar("SomeKind", bound=Kind)
AnyPrice = Price | RefusedPrice


@dataclass(frozen=True, slots=True)
class Ware(Generic[Pool]):
    """What a pool would buy: a type, in a zone, on one kind of purchase."""

    pool_name: str
    pool: Pool
    type: str
    zone: str
    purchase: Purchase

    @property
    def id(self) -> str:
        """That of its offer."""
        return f"{self.pool_name}/{self.type}/{self.zone}/{self.purchase.value}"


def is_ware(offer_id: str, region: str) -> bool:
    """Whether an offer's id is that of a `Ware` of the cloud whose regions match `region`.

    Zones are called by their regions, and no two clouds call these alike.
    """
    parts = offer_id.split("/")
    return len(parts) == 4 and parts[3] in _BOUGHT and re.match(region, parts[2]) is not None


class Stock(Generic[Pool]):
    """The wares of `pools`. `left_out` says why some can't be bought, by offer.

    `provider` is the name that offers go by; `types` and `zones` are those of a pool, and `scope`
    is where a ware is listed once it is bought.
    """

    def __init__(
        self,
        provider: str,
        pools: Mapping[str, Pool],
        types: Callable[[Pool], Iterable[str]],
        zones: Callable[[Pool], Iterable[str]],
        scope: Callable[[Ware[Pool]], str],
    ) -> None:
        self._provider = provider
        self._scope = scope
        self._wares = [
            Ware(name, pool, kind, zone, purchase)
            for name, pool in pools.items()
            for kind in types(pool)
            for zone in zones(pool)
            for purchase in pool.purchases
        ]
        self.left_out: Mapping[str, str] = {}

    def sales(
        self,
        kinds: Mapping[str, SomeKind],
        prices: Callable[[Ware[Pool], SomeKind], tuple[AnyPrice, AnyPrice]],
    ) -> list[Sale[Pool]]:
        """What is sold now of the types that there are, by their names.

        `prices` has what a ware costs, and what it would on demand.
        """
        sales: list[Sale[Pool]] = []
        left_out = {}
        for ware in self._wares:
            kind = kinds.get(ware.type)
            if kind is None or ware.zone not in kind.zones:
                left_out[ware.id] = f"{ware.type} is not to be had in {ware.zone}"
                continue
            price, on_demand = prices(ware, kind)
            if isinstance(price, RefusedPrice):
                left_out[ware.id] = price.reason
                continue
            most_usd = _most_usd(ware.purchase, price, on_demand) + ware.pool.extras_usd_per_hour
            offer = self._offer(ware, kind, price)
            scope = self._scope(ware)
            sales.append(Sale(offer, ware.pool_name, ware.pool, most_usd, scope))
        self._tell(left_out)
        return sales

    def _offer(self, ware: Ware[Pool], kind: Kind, price: Price) -> Offer:
        is_spot = ware.purchase is Purchase.SPOT
        has_queue = ware.purchase is Purchase.FLEX_START
        return Offer(
            id=ware.id,
            provider=self._provider,
            instance_type=kind.name,
            zone=ware.zone,
            purchase=ware.purchase,
            devices=kind.devices,
            device_kind=kind.device_kind,
            usd_per_hour=price.usd_per_hour + ware.pool.extras_usd_per_hour,
            boot_seconds=ware.pool.boot,
            network_bytes_per_second=kind.network_bytes_per_second,
            reclaims_per_hour=_USUAL_RECLAIMS_PER_HOUR if is_spot else 0.0,
            minimum_billed_seconds=MINIMUM_BILLED_SECONDS,
            fill_seconds=queues.USUAL_SECONDS if has_queue else 0.0,
            extras_usd_per_hour=ware.pool.extras_usd_per_hour,
            network=network_of(self._provider, ware.pool.region),
            price_source=price.source,
            priced_seconds=price.as_of_seconds,
        )

    def _tell(self, left_out: Mapping[str, str]) -> None:
        for offer_id in sorted(left_out.keys() - self.left_out.keys()):
            _log.warning("%s is not offered: %s", offer_id, left_out[offer_id])
        self.left_out = left_out


def _most_usd(purchase: Purchase, price: Price, on_demand: AnyPrice) -> Decimal:
    """Without a bid spot may come to cost what on-demand does, and never more."""
    if purchase is Purchase.SPOT and isinstance(on_demand, Price):
        return max(price.usd_per_hour, on_demand.usd_per_hour)
    return price.usd_per_hour
