"""What can be bought in the pools, at the prices of now."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import NotFound, PermissionDenied, ProviderError
from autoscaler.domain.offer import Limit, Purchase
from autoscaler.market.price_table import PriceTable
from autoscaler.market.prices import RefusedPrice
from providers.cloud.facts import Remembered
from providers.cloud.stock import AnyPrice, Stock, Ware
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

_MODELS: Final = {
    Purchase.SPOT: "SPOT",
    Purchase.ON_DEMAND: "STANDARD",
    Purchase.FLEX_START: "FLEX_START",
}
_LONGEST_RUN_SECONDS: Final = 7 * 86400


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
        self._stock = Stock(
            "gcp", settings.pools, PoolForm.types, settings.zones_of, lambda ware: ware.zone
        )
        self.closed: frozenset[str] = frozenset()
        self.unpriced: str | None = None

    @property
    def left_out(self) -> Mapping[str, str]:
        """Why offers can't be bought, by offer."""
        return self._stock.left_out

    def sales(self) -> list[GcpSale]:
        """What is sold now. What has no price that one may spend by is in `left_out`.

        Raises:
            ProviderError: types or templates can't be had.
        """
        kinds, wrong = self._kinds.get(), self._templates.get()
        asked_seconds, parts = self._known_parts()

        def price(ware: Ware[PoolForm], kind: Kind, purchase: Purchase) -> AnyPrice:
            region = region_of(ware.zone)
            return price_of(kind, ware.zone, region, purchase, parts, self._table, asked_seconds)

        def prices(ware: Ware[PoolForm], kind: Kind) -> tuple[AnyPrice, AnyPrice]:
            listed = price(ware, kind, Purchase.ON_DEMAND)
            reason = wrong.get((ware.pool_name, ware.purchase))
            if reason is not None:
                return RefusedPrice(reason), listed
            return price(ware, kind, ware.purchase), listed

        return self._stock.sales(kinds, prices)

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


def _fault(scheduling: Any, purchase: Purchase) -> str | None:
    """What of a template would buy something else, or leave what is billed for nothing.

    The old preemptible instances, which end after 24 hours whatever the capacity, are not bought.
    """
    model = scheduling.provisioning_model or ("" if scheduling.preemptible else "STANDARD")
    if model != _MODELS[purchase]:
        told = model or "preemptible, as it was before spot"
        return f"it buys {told}: provisioningModel must be {_MODELS[purchase]}"
    is_deleted = scheduling.instance_termination_action == "DELETE"
    if purchase is Purchase.SPOT and not is_deleted:
        return "what is preempted would stay: instanceTerminationAction must be DELETE"
    if purchase is Purchase.FLEX_START:
        longest_seconds = scheduling.max_run_duration.seconds
        if not is_deleted:
            return "what has run its time would stay: instanceTerminationAction must be DELETE"
        if not 0 < longest_seconds <= _LONGEST_RUN_SECONDS:
            return f"it runs for {longest_seconds} s: maxRunDuration must be 7 days at most"
    return None
