"""What can be bought in the pools, at the prices of now."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from autoscaler.clock import Clock
from autoscaler.domain.errors import ProviderError
from autoscaler.domain.offer import Limit, Purchase
from autoscaler.market.price_table import PriceTable
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
from providers.cloud.stock import AnyPrice, Stock, Ware

_log = logging.getLogger(__name__)


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
        self._stock = Stock(
            "aws",
            self._pools,
            lambda pool: pool.instance_types,
            settings.zones_of,
            lambda ware: ware.pool.region,
        )
        self.closed: frozenset[str] = frozenset()

    @property
    def left_out(self) -> Mapping[str, str]:
        """Why offers can't be bought, by offer."""
        return self._stock.left_out

    def sales(self) -> list[AwsSale]:
        """What is sold now. What has no price that one may spend by is in `left_out`.

        Raises:
            ProviderError: types or prices can't be had.
        """
        kinds, on_demand, spot = self._kinds.get(), self._on_demand.get(), self._spot.get()

        def prices(ware: Ware[PoolForm], kind: Kind) -> tuple[AnyPrice, AnyPrice]:
            listed = on_demand[kind.name]
            if ware.purchase is not Purchase.SPOT:
                return listed, listed
            return price_of_spot(spot.get((kind.name, ware.zone)), listed), listed

        return self._stock.sales(kinds, prices)

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
