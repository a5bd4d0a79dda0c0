"""Sales of one region's pools at current prices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

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
from providers.aws.reservations import reservations_of
from providers.aws.settings import AwsSale, AwsSettings, CallTimeouts, PoolForm
from providers.base import SpotScores
from providers.cloud.facts import TTLValue
from providers.cloud.replies import readable
from providers.cloud.reservations import PoolReservations
from providers.cloud.stock import AnyPrice, PoolInventory, PoolListing

_SCORED_TYPES: Final = 3  # botocore's model, GetSpotPlacementScores.InstanceTypes


class RegionOffering:
    """Sales, quotas and reservations of one region's pools, cached like types and prices.

    `table` is the owner's price list, or None. `held` returns the number of the deployment's
    instances in pools of these names. `closed` names the quotas that have no room for one
    instance. `unread_quotas` is the error of quotas that were never read, or None.
    """

    def __init__(
        self,
        settings: AwsSettings,
        calls: RegionCalls,
        patience: CallTimeouts,
        table: PriceTable | None,
        held: Callable[[Collection[str]], int],
        clock: Clock,
    ) -> None:
        self._region = calls.region
        self._calls = calls
        self._settings = settings
        self._pools = {
            name: pool for name, pool in settings.pools.items() if pool.region == calls.region
        }
        names = self._names(Purchase.ON_DEMAND, Purchase.SPOT)
        spot_names = self._names(Purchase.SPOT)
        zones = sorted(settings.regions[calls.region].subnets)
        facts_seconds, retry_seconds = patience.facts_seconds, patience.retry_seconds
        # The price list and the quotas have no endpoint in a private network.
        has_internet = settings.has_internet
        price_list = PriceList(calls, names, table, facts_seconds, is_asked=has_internet)
        self._kinds: TTLValue[Mapping[str, Kind]] = TTLValue(
            lambda: kinds_of(calls, self._names(*Purchase)), facts_seconds, retry_seconds, clock
        )
        self._on_demand: TTLValue[OnDemandPrices] = TTLValue(
            lambda: price_list.prices(clock.now()), patience.prices_seconds, retry_seconds, clock
        )
        self._spot: TTLValue[SpotQuotes] = TTLValue(
            lambda: spot_quotes(calls, spot_names, zones, clock.now()) if spot_names else {},
            patience.prices_seconds,
            retry_seconds,
            clock,
        )
        self._quotas: TTLValue[list[VcpuQuota]] = TTLValue(
            lambda: read_quotas(calls) if has_internet else [], facts_seconds, retry_seconds, clock
        )
        self._reservations = PoolReservations(
            self._pools,
            lambda: reservations_of(calls, self._pools, settings.account),
            held,
            patience.prices_seconds,
            retry_seconds,
            clock,
        )
        self._stock = PoolInventory(
            "aws",
            self._pools,
            lambda pool: pool.instance_types,
            settings.zones_of,
            lambda ware: ware.pool.region,
            spans_zones=True,
        )
        self.closed: frozenset[str] = frozenset()
        self.unread_quotas: str | None = None

    @property
    def left_out(self) -> Mapping[str, str]:
        """Reasons why offers can't be bought, by offer id."""
        return self._stock.left_out

    @property
    def begins(self) -> Mapping[str, float]:
        """Times at which reservations begin that are paid for, by the id of the offer."""
        return self._stock.begins

    def sales(self) -> list[AwsSale]:
        """Return the current sales. An offer without a usable price is in `left_out` instead.

        Raises:
            ProviderError: types or prices are unavailable.
        """
        kinds, on_demand, spot = self._kinds.get(), self._on_demand.get(), self._spot.get()

        def prices(ware: PoolListing[PoolForm], kind: Kind) -> tuple[AnyPrice, AnyPrice]:
            if ware.purchase is Purchase.RESERVED:
                price = self._reservations.price(ware)
                return price, price
            listed = on_demand[kind.name]
            if ware.purchase is not Purchase.SPOT:
                return listed, listed
            return price_of_spot(spot.get((kind.name, ware.zone)), listed), listed

        sales = self._stock.sales(
            kinds, prices, lambda ware, kind: kind.bytes_per_second_of(ware.pool.network_cards)
        )
        return self._reservations.with_ends(sales)

    def limits(self, sales: Iterable[AwsSale]) -> list[Limit]:
        """Return the account's quotas and reservations as limits, and update `closed`.

        The last known quotas apply if the quotas can't be read. The result is empty if there are
        none.
        """
        region_sales = [sale for sale in sales if sale.pool.region == self._region]
        try:
            quotas = self._quotas.get()
        except ProviderError as error:
            quotas = self._quotas.last or []
            self.unread_quotas = None if quotas else str(error)
        else:
            self.unread_quotas = None
        limits = quota_limits(self._region, quotas, region_sales, self._kinds.last or {})
        self.closed = frozenset(limit.name for limit in limits if limit.maximum == 0)
        return limits + self._reservations.limits(region_sales)

    def spot_scores(self, pool_name: str) -> SpotScores:
        """Return the spot placement scores of a pool's zones, for all its instances in one zone.

        EC2 scores ids of zones, which have other names in each account.

        Raises:
            ProviderError: the scores or the zones can't be read.
        """
        pool, region = self._pools[pool_name], self._region
        described = self._calls.describe("DescribeAvailabilityZones")
        pages = self._calls.pages(
            "GetSpotPlacementScores",
            InstanceTypes=list(pool.instance_types),
            TargetCapacity=pool.max_instances,
            RegionNames=[region],
            SingleAvailabilityZone=True,
        )
        with readable(f"{region}: GetSpotPlacementScores"):
            names = {zone["ZoneId"]: zone["ZoneName"] for zone in described["AvailabilityZones"]}
            scored = {
                names.get(score["AvailabilityZoneId"]): score["Score"]
                for page in pages
                for score in page["SpotPlacementScores"]
            }
        zones = [zone for zone in self._settings.zones_of(pool) if zone in scored]
        is_low = len(pool.instance_types) < _SCORED_TYPES
        caveat = f"of fewer than {_SCORED_TYPES} types EC2's are always low" if is_low else ""
        return SpotScores(pool.max_instances, {zone: scored[zone] for zone in zones}, caveat)

    def _names(self, *purchases: Purchase) -> list[str]:
        """Return the types of the pools that allow one of these purchases."""
        matching_pools = [
            pool for pool in self._pools.values() if {*purchases} & {*pool.purchases}
        ]
        return sorted({name for pool in matching_pools for name in pool.instance_types})
