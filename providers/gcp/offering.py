"""What can be bought in the pools, at the prices of now."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import NotFound, PermissionDenied, ProviderError
from autoscaler.domain.offer import Limit, Offer, Purchase
from autoscaler.market.catalogue import MINIMUM_BILLED_SECONDS
from autoscaler.market.price_table import PriceTable
from autoscaler.market.prices import Price, RefusedPrice
from providers.cloud.facts import Remembered
from providers.cloud.sales import Sale
from providers.gcp.calls import ProjectCalls
from providers.gcp.kinds import Kind, kinds_of
from providers.gcp.prices import PartPrices, part_prices, price_of
from providers.gcp.quotas import Quotas, quota_limits, read_quotas
from providers.gcp.settings import (
    GcpSale,
    GcpSettings,
    Patience,
    PoolForm,
    region_of,
    template_of,
)

_log = logging.getLogger(__name__)

# Google does not tell; what is seen takes its place.
_USUAL_RECLAIMS_PER_HOUR: Final = 0.2
_MODELS: Final = {Purchase.SPOT: "SPOT", Purchase.ON_DEMAND: "STANDARD"}


class Offering:
    """The pools, and what is remembered of their types, templates, prices and quotas."""

    def __init__(
        self,
        settings: GcpSettings,
        calls: ProjectCalls,
        patience: Patience,
        table: PriceTable | None,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._table = table
        self._clock = clock
        regions = sorted({pool.region for pool in settings.pools.values()})
        slow, retry = patience.facts_seconds, patience.retry_seconds
        self._kinds: Remembered[Mapping[str, Kind]] = Remembered(
            lambda: kinds_of(settings, calls), slow, retry, clock
        )
        self._templates: Remembered[Mapping[tuple[str, Purchase], str]] = Remembered(
            self._wrong_templates, slow, retry, clock
        )
        self._parts: Remembered[tuple[float, PartPrices]] = Remembered(
            lambda: (clock.now(), part_prices(calls, regions)),
            patience.prices_seconds,
            max(retry, patience.prices_seconds / 12),
            clock,
        )
        self._quotas: Remembered[Quotas] = Remembered(
            lambda: read_quotas(calls, regions), slow, retry, clock
        )
        self.closed: frozenset[str] = frozenset()
        self.left_out: dict[str, str] = {}
        self.unpriced: str | None = None

    def sales(self) -> list[GcpSale]:
        """What is sold now. What has no price that one may spend by is in `left_out`.

        Raises:
            ProviderError: types or templates can't be had.
        """
        kinds, wrong = self._kinds.get(), self._templates.get()
        asked_seconds, parts = self._known_parts()
        sales: list[GcpSale] = []
        left_out = {}
        for name, pool in self._settings.pools.items():
            for offer_id, kind_name, zone, purchase in self._places(name, pool):
                kind = kinds.get(kind_name)
                if kind is None or zone not in kind.zones:
                    left_out[offer_id] = f"{kind_name} is not to be had in {zone}"
                    continue
                if (name, purchase) in wrong:
                    left_out[offer_id] = wrong[name, purchase]
                    continue
                price, listed = (
                    price_of(kind, zone, region_of(zone), one, parts, self._table, asked_seconds)
                    for one in (purchase, Purchase.ON_DEMAND)
                )
                if isinstance(price, RefusedPrice):
                    left_out[offer_id] = price.reason
                    continue
                offer = self._offer(offer_id, kind, zone, purchase, price, pool)
                most = _most(price, listed) + pool.extras_usd_per_hour
                sales.append(Sale(offer, name, pool, most))
        self._tell(left_out)
        return sales

    def limits(self, sales: Iterable[GcpSale]) -> list[Limit]:
        """The project's quotas; none where they can't be read: a launch is refused beyond them.

        Those that leave room for none are in `closed`.
        """
        try:
            quotas = self._quotas.get()
        except ProviderError as error:
            _log.debug("quotas are not known: %s", error)
            quotas = self._quotas.last or {}
        limits = quota_limits(quotas, sales, self._kinds.last or {})
        self.closed = frozenset(limit.name for limit in limits if limit.maximum == 0)
        return limits

    def _known_parts(self) -> tuple[float, PartPrices | None]:
        """Cloud Billing is a help: without it the owner's list and the catalogue have prices."""
        try:
            found = self._parts.get()
        except ProviderError as error:
            if self.unpriced is None:
                _log.warning("Cloud Billing tells no prices: %s", error)
            self.unpriced = str(error)
            return self._parts.last or (self._clock.now(), None)
        self.unpriced = None
        return found

    def _wrong_templates(self) -> Mapping[tuple[str, Purchase], str]:
        """Why pools can't be bought by their templates, where that is so.

        Raises:
            ProviderError: they can't be read now.
        """
        wrong = {}
        for name, pool in self._settings.pools.items():
            for purchase in pool.purchases:
                try:
                    told = self._calls.template(template_of(pool, purchase), name)
                    reason = _fault(told.properties.scheduling, purchase)
                except NotFound as error:
                    reason = str(error)
                except PermissionDenied as error:
                    _log.info("templates are taken to be right: %s", error)
                    continue
                if reason is not None:
                    wrong[name, purchase] = f"pools.{name}.templates.{purchase.value}: {reason}"
        return wrong

    def _places(self, name: str, pool: PoolForm) -> Iterable[tuple[str, str, str, Purchase]]:
        for machine_type in pool.machine_types:
            kind = pool.instance_type(machine_type)
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
            provider="gcp",
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


def _fault(scheduling: Any, purchase: Purchase) -> str | None:
    """What of a template would buy something else, or leave what is billed for nothing.

    The old preemptible instances, which end after 24 hours whatever the capacity, are not bought.
    """
    model = scheduling.provisioning_model or ("" if scheduling.preemptible else "STANDARD")
    if model != _MODELS[purchase]:
        told = model or "preemptible, as it was before spot"
        return f"it buys {told}: provisioningModel must be {_MODELS[purchase]}"
    if purchase is Purchase.SPOT and scheduling.instance_termination_action != "DELETE":
        return "what is preempted would stay: instanceTerminationAction must be DELETE"
    return None


def _most(price: Price, on_demand: Price | RefusedPrice) -> Decimal:
    """Spot may come to cost what on-demand does, and never more."""
    if isinstance(on_demand, Price):
        return max(price.usd_per_hour, on_demand.usd_per_hour)
    return price.usd_per_hour
