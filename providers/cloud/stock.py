"""Offers of a cloud's pools at current prices, and reasons for the ones left out."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from autoscaler.domain.offer import Offer, Purchase
from autoscaler.market import queues
from autoscaler.market.catalogue import MINIMUM_BILLED_SECONDS
from autoscaler.market.egress import network_of
from autoscaler.market.prices import Price, RefusedPrice
from providers.cloud.sales import PoolBounds, Sale

_log = logging.getLogger(__name__)

# Prior, since clouds publish no rate; observed reclaims replace it.
_PRIOR_RECLAIMS_PER_HOUR: Final = 0.2
_POOL_PURCHASES: Final = frozenset(kind.value for kind in Purchase)


class PoolTerms(PoolBounds, Protocol):
    """Pool of the settings, with the terms of purchase."""

    @property
    def purchases(self) -> Sequence[Purchase]:
        """Kinds of purchase that the pool allows."""
        ...

    @property
    def boot(self) -> float:
        """Seconds from a launch until an instance can work."""
        ...

    @property
    def boot_minutes(self) -> int:
        """Minutes after which an instance whose agent has not joined ends."""
        ...

    @property
    def extras_usd_per_hour(self) -> Decimal:
        """Extra charges for each instance in US dollars per hour."""
        ...


class TypeDescription(Protocol):
    """Instance type as described by its cloud."""

    @property
    def name(self) -> str:
        """Name of the type in the catalogue."""
        ...

    @property
    def devices(self) -> int:
        """Number of devices."""
        ...

    @property
    def device_kind(self) -> str:
        """Kind of device."""
        ...

    @property
    def network_bytes_per_second(self) -> float:
        """Bytes per second that an instance can send to other instances."""
        ...

    @property
    def zones(self) -> frozenset[str]:
        """Zones that offer the type."""
        ...


Pool = TypeVar("Pool", bound=PoolTerms)
SomeKind = TypeVar("SomeKind", bound=TypeDescription)
AnyPrice = Price | RefusedPrice


@dataclass(frozen=True, slots=True)
class PoolListing(Generic[Pool]):
    """Item that a pool may buy: a type in a zone on one kind of purchase."""

    pool_name: str
    pool: Pool
    type: str
    zone: str
    purchase: Purchase

    @property
    def id(self) -> str:
        """Id of the offer."""
        return f"{self.pool_name}/{self.type}/{self.zone}/{self.purchase.value}"


class OfferIdParts(NamedTuple):
    """Parts of the id of a `PoolListing`, as it writes them."""

    pool_name: str
    type: str
    zone: str
    purchase: str


def parts_of(offer_id: str) -> OfferIdParts | None:
    """Return the parts of the id of a `PoolListing`; None for any other id."""
    parts = offer_id.split("/")
    return OfferIdParts(*parts) if len(parts) == 4 else None


def in_zone(offer_id: str, zone: str) -> str:
    """Return the id of a `PoolListing` in another zone; any other id as it is."""
    parts = parts_of(offer_id)
    return offer_id if parts is None else "/".join(parts._replace(zone=zone))


def is_pool_offer(offer_id: str, region: str) -> bool:
    """Return whether an offer is a `PoolListing` of the cloud whose regions match `region`.

    Zone names start with their region's name, and region names differ between clouds.
    """
    parts = parts_of(offer_id)
    return (
        parts is not None
        and parts.purchase in _POOL_PURCHASES
        and re.match(region, parts.zone) is not None
    )


class PoolInventory(Generic[Pool]):
    """Items that `pools` may buy.

    `left_out` maps an offer id to the reason why it can't be bought, and `begins` to when it can
    be, if that is known, in seconds since the Unix epoch. `provider` is the provider's
    name in offers. `types` and `zones` return those of a pool. `scope` returns the scope whose
    list shows an item once it is bought. `spans_zones`: one order may name several zones.
    """

    def __init__(
        self,
        provider: str,
        pools: Mapping[str, Pool],
        types: Callable[[Pool], Iterable[str]],
        zones: Callable[[Pool], Iterable[str]],
        scope: Callable[[PoolListing[Pool]], str],
        spans_zones: bool = False,
    ) -> None:
        self._provider = provider
        self._scope = scope
        self._spans_zones = spans_zones
        self._wares = [
            PoolListing(name, pool, kind, zone, purchase)
            for name, pool in pools.items()
            for kind in types(pool)
            for zone in zones(pool)
            for purchase in pool.purchases
        ]
        self.left_out: Mapping[str, str] = {}
        self.begins: Mapping[str, float] = {}

    def sales(
        self,
        kinds: Mapping[str, SomeKind],
        prices: Callable[[PoolListing[Pool], SomeKind], tuple[AnyPrice, AnyPrice]],
        bandwidth: Callable[[PoolListing[Pool], SomeKind], float] | None = None,
    ) -> list[Sale[Pool]]:
        """Return a sale for each item that can be bought now, and update `left_out`.

        `kinds` maps a type's name to the type. `prices` returns an item's price and its on-demand
        price. `bandwidth` returns an item's bandwidth in bytes per second; None: that of its type.
        """
        sales: list[Sale[Pool]] = []
        left_out, begins = {}, {}
        for ware in self._wares:
            kind = kinds.get(ware.type)
            if kind is None or ware.zone not in kind.zones:
                left_out[ware.id] = f"{ware.type} is not available in {ware.zone}"
                continue
            price, on_demand = prices(ware, kind)
            if isinstance(price, RefusedPrice):
                left_out[ware.id] = price.reason
                if price.begins_seconds is not None:
                    begins[ware.id] = price.begins_seconds
                continue
            most_usd = (
                _max_usd_per_hour(ware.purchase, price, on_demand) + ware.pool.extras_usd_per_hour
            )
            offer = self._offer(ware, kind, price)
            if bandwidth is not None:
                offer = replace(offer, network_bytes_per_second=bandwidth(ware, kind))
            scope = self._scope(ware)
            sales.append(Sale(offer, ware.pool_name, ware.pool, most_usd, scope))
        self._update_left_out(left_out)
        self.begins = begins
        return sales

    def _offer(self, ware: PoolListing[Pool], kind: TypeDescription, price: Price) -> Offer:
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
            reclaims_per_hour=_PRIOR_RECLAIMS_PER_HOUR if is_spot else 0.0,
            minimum_billed_seconds=MINIMUM_BILLED_SECONDS,
            fill_seconds=queues.USUAL_SECONDS if has_queue else 0.0,
            extras_usd_per_hour=ware.pool.extras_usd_per_hour,
            network=network_of(self._provider, ware.pool.region),
            join_seconds=ware.pool.boot_minutes * 60.0,
            order_group=in_zone(ware.id, "*") if self._spans_zones else "",
            price_source=price.source,
            priced_seconds=price.as_of_seconds,
        )

    def _update_left_out(self, left_out: Mapping[str, str]) -> None:
        for offer_id in sorted(left_out.keys() - self.left_out.keys()):
            _log.warning("%s is not offered: %s", offer_id, left_out[offer_id])
        self.left_out = left_out


def _max_usd_per_hour(purchase: Purchase, price: Price, on_demand: AnyPrice) -> Decimal:
    """Return the maximum hourly price. Spot without a bid costs at most the on-demand price."""
    if purchase is Purchase.SPOT and isinstance(on_demand, Price):
        return max(price.usd_per_hour, on_demand.usd_per_hour)
    return price.usd_per_hour
