"""What can be bought in the pools, at the prices of now."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import ProviderError
from autoscaler.domain.offer import Limit, Offer, Purchase
from autoscaler.market.catalogue import MINIMUM_BILLED_SECONDS
from autoscaler.market.price_table import PriceTable
from autoscaler.market.prices import Price, RefusedPrice
from providers.aws.calls import RegionCalls
from providers.aws.kinds import Kind, kinds_of
from providers.aws.prices import (
    OnDemandPrices,
    PriceList,
    SpotQuotes,
    price_of_spot,
    spot_quotes,
)
from providers.aws.quotas import VcpuQuota, quota_limits, read_quotas
from providers.aws.settings import AwsSale, AwsSettings, Patience, PoolForm
from providers.cloud.facts import Remembered
from providers.cloud.sales import Sale

_log = logging.getLogger(__name__)

# AWS does not tell; what is seen takes its place.
_USUAL_RECLAIMS_PER_HOUR: Final = 0.2


class RegionOffering:
    """The pools of one region, and what is remembered of its types, prices and quotas."""

    def __init__(
        self,
        settings: AwsSettings,
        calls: RegionCalls,
        patience: Patience,
        table: PriceTable | None,
        clock: Clock,
    ) -> None:
        self._region = calls.region
        self._settings = settings
        self._clock = clock
        self._pools = {
            name: pool for name, pool in settings.pools.items() if pool.region == calls.region
        }
        names = self._names(Purchase.ON_DEMAND, Purchase.SPOT)
        on_spot = self._names(Purchase.SPOT)
        zones = sorted(settings.regions[calls.region].subnets)
        slow, retry = patience.facts_seconds, patience.retry_seconds
        # Price list and quotas have no endpoint in a network of one's own.
        is_open = settings.has_internet
        price_list = PriceList(calls, names, table, slow, is_asked=is_open)
        self._kinds: Remembered[Mapping[str, Kind]] = Remembered(
            lambda: kinds_of(calls, names), slow, retry, clock
        )
        self._on_demand: Remembered[OnDemandPrices] = Remembered(
            lambda: price_list.prices(clock.now()), patience.prices_seconds, retry, clock
        )
        self._spot: Remembered[SpotQuotes] = Remembered(
            lambda: spot_quotes(calls, on_spot, zones, clock.now()) if on_spot else {},
            patience.prices_seconds,
            retry,
            clock,
        )
        self._quotas: Remembered[list[VcpuQuota]] = Remembered(
            lambda: read_quotas(calls) if is_open else [], slow, retry, clock
        )
        self.closed: frozenset[str] = frozenset()
        self.left_out: dict[str, str] = {}

    def sales(self) -> list[AwsSale]:
        """What is sold now. What has no price that one may spend by is in `left_out`.

        Raises:
            ProviderError: types or prices can't be had.
        """
        kinds, on_demand, spot = self._kinds.get(), self._on_demand.get(), self._spot.get()
        sales, left_out = [], {}
        for name, pool in self._pools.items():
            for offer_id, kind_name, zone, purchase in self._places(name, pool):
                kind = kinds.get(kind_name)
                if kind is None or zone not in kind.zones:
                    left_out[offer_id] = f"{kind_name} is not to be had in {zone}"
                    continue
                listed = on_demand[kind_name]
                price = (
                    price_of_spot(spot.get((kind_name, zone)), listed)
                    if purchase is Purchase.SPOT
                    else listed
                )
                if isinstance(price, RefusedPrice):
                    left_out[offer_id] = price.reason
                    continue
                offer = self._offer(offer_id, kind, zone, purchase, price, pool)
                most = _most(price, listed) + pool.extras_usd_per_hour
                sales.append(Sale(offer, name, pool, most))
        self._tell(left_out)
        return sales

    def limits(self, sales: Iterable[AwsSale]) -> list[Limit]:
        """The account's quotas; none where they can't be read, and EC2 refuses beyond them.

        Those that leave room for none of a type are in `closed`.
        """
        own = [sale for sale in sales if sale.pool.region == self._region]
        try:
            quotas = self._quotas.get()
        except ProviderError as error:
            _log.debug("%s: quotas are not known: %s", self._region, error)
            quotas = self._quotas.last or []
        limits = quota_limits(self._region, quotas, own, self._kinds.last or {})
        self.closed = frozenset(limit.name for limit in limits if limit.maximum == 0)
        return limits

    def _names(self, *purchases: Purchase) -> list[str]:
        """The types that pools buy on such terms."""
        buying = [pool for pool in self._pools.values() if {*purchases} & {*pool.purchases}]
        return sorted({one for pool in buying for one in pool.instance_types})

    def _places(self, name: str, pool: PoolForm) -> Iterable[tuple[str, str, str, Purchase]]:
        for kind in pool.instance_types:
            for zone in self._settings.zones_of(pool):
                for purchase in pool.purchases:
                    yield f"{name}/{kind}/{zone}/{purchase.value}", kind, zone, purchase

    def _offer(
        self,
        offer_id: str,
        kind: Kind,
        zone: str,
        purchase: Purchase,
        price: Price,
        pool: PoolForm,
    ) -> Offer:
        return Offer(
            id=offer_id,
            provider="aws",
            instance_type=kind.name,
            zone=zone,
            purchase=purchase,
            devices=kind.devices,
            device_kind=kind.device_kind,
            usd_per_hour=price.usd_per_hour + pool.extras_usd_per_hour,
            boot_seconds=pool.boot,
            network_bytes_per_second=kind.network_bytes_per_second,
            reclaims_per_hour=_USUAL_RECLAIMS_PER_HOUR if purchase is Purchase.SPOT else 0.0,
            minimum_billed_seconds=MINIMUM_BILLED_SECONDS,
            extras_usd_per_hour=pool.extras_usd_per_hour,
            price_source=price.source,
            priced_seconds=price.as_of_seconds,
        )

    def _tell(self, left_out: dict[str, str]) -> None:
        for offer_id in sorted(left_out.keys() - self.left_out):
            _log.warning("%s is not offered: %s", offer_id, left_out[offer_id])
        self.left_out = left_out


def _most(price: Price, on_demand: Price | RefusedPrice) -> Decimal:
    """Without a bid spot may come to cost what on-demand does, and never more."""
    if isinstance(on_demand, Price):
        return max(price.usd_per_hour, on_demand.usd_per_hour)
    return price.usd_per_hour
