"""Sales of the pools at current prices."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import NotFound, PermissionDenied, ProviderError
from autoscaler.domain.offer import Limit, Purchase
from autoscaler.market.price_table import PriceTable
from autoscaler.market.prices import RefusedPrice
from providers.cloud.facts import TTLValue
from providers.cloud.reservations import PoolReservations, Reservation
from providers.cloud.stock import AnyPrice, PoolInventory, PoolListing
from providers.gcp.calls import ProjectCalls
from providers.gcp.kinds import Kind, kinds_of
from providers.gcp.prices import PartPrices, part_prices, price_of
from providers.gcp.quotas import Quotas, quota_limits, read_quotas
from providers.gcp.reservations import reservations_of
from providers.gcp.series import unfit_disk_reason, unsold_reason
from providers.gcp.settings import (
    CallTimeouts,
    GcpSale,
    GcpSettings,
    PoolForm,
    region_of,
    template_of,
)

_log = logging.getLogger(__name__)

_PROVISIONING_MODELS: Final = {
    Purchase.SPOT: ("SPOT",),
    Purchase.ON_DEMAND: ("STANDARD",),
    Purchase.FLEX_START: ("FLEX_START",),
    Purchase.RESERVED: ("STANDARD", "RESERVATION_BOUND"),
}
_MAX_RUN_SECONDS: Final = 7 * 86400


class Offering:
    """Sales, quotas and reservations of the pools, cached like types, templates and prices.

    `table` is the owner's price list, or None. `held` returns the number of the deployment's
    instances in pools of these names. `closed` names the quotas that have no room for one device
    or instance. `unpriced` is the error of the last price fetch, and `unread_quotas`
    that of quotas that were never read, or None.
    """

    def __init__(
        self,
        settings: GcpSettings,
        calls: ProjectCalls,
        patience: CallTimeouts,
        table: PriceTable | None,
        held: Callable[[Collection[str]], int],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._table = table
        self._clock = clock
        regions = sorted({pool.region for pool in settings.pools.values()})
        facts_seconds, retry_seconds = patience.facts_seconds, patience.retry_seconds
        self._kinds: TTLValue[Mapping[str, Kind]] = TTLValue(
            lambda: kinds_of(settings, calls), facts_seconds, retry_seconds, clock
        )
        self._templates: TTLValue[Mapping[tuple[str, Purchase], TemplateFacts]] = TTLValue(
            self._template_facts, facts_seconds, retry_seconds, clock
        )
        self._parts: TTLValue[tuple[float, PartPrices]] = TTLValue(
            lambda: (clock.now(), part_prices(calls, regions)),
            patience.prices_seconds,
            max(retry_seconds, patience.prices_seconds / 12),
            clock,
        )
        self._quotas: TTLValue[Quotas] = TTLValue(
            lambda: read_quotas(calls, regions), facts_seconds, retry_seconds, clock
        )
        self._reservations = PoolReservations(
            settings.pools,
            self._describe_reservations,
            held,
            patience.reservations_seconds,
            retry_seconds,
            clock,
        )
        self._stock = PoolInventory(
            "gcp", settings.pools, PoolForm.types, settings.zones_of, lambda ware: ware.zone
        )
        self.closed: frozenset[str] = frozenset()
        self.unread_quotas: str | None = None
        self.unpriced: str | None = None

    @property
    def left_out(self) -> Mapping[str, str]:
        """Reasons why offers can't be bought, by offer id."""
        return self._stock.left_out

    def sales(self) -> list[GcpSale]:
        """Return the current sales. An offer without a usable price is in `left_out` instead.

        Raises:
            ProviderError: types or templates are unavailable.
        """
        kinds, templates = self._kinds.get(), self._templates.get()
        fetched_seconds, parts = self._known_parts()

        def price(ware: PoolListing[PoolForm], kind: Kind, purchase: Purchase) -> AnyPrice:
            region = region_of(ware.zone)
            return price_of(kind, ware.zone, region, purchase, parts, self._table, fetched_seconds)

        def prices(ware: PoolListing[PoolForm], kind: Kind) -> tuple[AnyPrice, AnyPrice]:
            if ware.purchase is Purchase.RESERVED:
                paid = self._reservations.price(ware)
                return paid, paid
            listed = price(ware, kind, Purchase.ON_DEMAND)
            reason = _reason_not_sold(ware, kind, templates.get((ware.pool_name, ware.purchase)))
            if reason is not None:
                return RefusedPrice(reason), listed
            return price(ware, kind, ware.purchase), listed

        return self._reservations.with_ends(self._stock.sales(kinds, prices))

    def limits(self, sales: Sequence[GcpSale]) -> list[Limit]:
        """Return the project's quotas and reservations as limits, and update `closed`.

        The last known quotas apply if the quotas can't be read. The result is empty if there are
        none.
        """
        try:
            quotas = self._quotas.get()
        except ProviderError as error:
            quotas = self._quotas.last or {}
            self.unread_quotas = None if quotas else str(error)
        else:
            self.unread_quotas = None
        limits = quota_limits(quotas, sales, self._kinds.last or {}, self._is_short)
        self.closed = frozenset(limit.name for limit in limits if limit.maximum == 0)
        return limits + self._reservations.limits(sales)

    def _describe_reservations(self) -> dict[str, Reservation]:
        """Return the pools' reservations; closed ones where the template does not fit."""
        errors = {
            name: facts.error and f"has a wrong template: {facts.error}"
            for (name, purchase), facts in self._templates.get().items()
            if purchase is Purchase.RESERVED
        }
        return reservations_of(self._calls, self._settings.pools, errors)

    def _is_short(self, sale: GcpSale) -> bool:
        """Return whether a template is known by which its instances end within seven days."""
        facts = (self._templates.last or {}).get((sale.pool_name, sale.offer.purchase))
        return facts is not None and facts.is_short

    def _known_parts(self) -> tuple[float, PartPrices | None]:
        """Return when Cloud Billing's prices were fetched, and the prices; None if never.

        Cloud Billing is optional: the owner's list and the catalogue have prices, too.
        """
        try:
            fetched = self._parts.get()
        except ProviderError as error:
            if self.unpriced is None:
                _log.warning("Cloud Billing's prices can't be read: %s", error)
            self.unpriced = str(error)
            return self._parts.last or (self._clock.now(), None)
        self.unpriced = None
        return fetched

    def _template_facts(self) -> Mapping[tuple[str, Purchase], TemplateFacts]:
        """Return the facts of the templates that can be read, by pool and purchase.

        Raises:
            ProviderError: the templates can't be read now.
        """
        facts = {}
        for name, pool in self._settings.pools.items():
            for purchase in pool.purchases:
                try:
                    template = self._calls.template(template_of(pool, purchase), name)
                    facts[name, purchase] = _facts_of(template.properties, purchase, pool)
                except NotFound as error:
                    facts[name, purchase] = TemplateFacts(error=str(error))
                except PermissionDenied as error:
                    _log.info("the templates can't be read and are assumed correct: %s", error)
        return facts


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """Facts of an instance template.

    `error` says why the template can't be bought; None if it can. `disk_type` is the type of the
    boot disk, empty if the template leaves it to Compute Engine. `is_short` is True if Compute
    Engine deletes the instances within seven days.
    """

    error: str | None = None
    disk_type: str = ""
    is_short: bool = False


def _facts_of(properties: Any, purchase: Purchase, pool: PoolForm) -> TemplateFacts:
    disk_types = [disk.initialize_params.disk_type for disk in properties.disks if disk.boot]
    scheduling = properties.scheduling
    affinity_error = _affinity_error(properties.reservation_affinity, pool)
    return TemplateFacts(
        error=_template_error(scheduling, purchase) or affinity_error,
        is_short=scheduling.instance_termination_action == "DELETE"
        and 0 < scheduling.max_run_duration.seconds <= _MAX_RUN_SECONDS,
        disk_type=disk_types[0].rpartition("/")[2] if disk_types else "",
    )


def _reason_not_sold(
    ware: PoolListing[PoolForm], kind: Kind, template: TemplateFacts | None
) -> str | None:
    """Return why an item can't be bought whatever its price; None if it can.

    `template` is None if it can't be read; it is then assumed correct.
    """
    reason = unsold_reason(kind.machine_type, ware.purchase)
    if reason is not None or template is None:
        return reason
    error = template.error or unfit_disk_reason(kind.machine_type, template.disk_type)
    return error and f"pools.{ware.pool_name}.templates.{ware.purchase.value}: {error}"


def _template_error(scheduling: Any, purchase: Purchase) -> str | None:
    """Return why a template buys the wrong instances or leaves billed ones behind; None if right.

    The old preemptible instances are refused, since they end after 24 hours even if there is
    capacity.
    """
    model = scheduling.provisioning_model or ("" if scheduling.preemptible else "STANDARD")
    if model not in _PROVISIONING_MODELS[purchase]:
        model_name = model or "preemptible, as it was before spot"
        right = " or ".join(_PROVISIONING_MODELS[purchase])
        return f"it launches {model_name}: provisioningModel must be {right}"
    is_deleted = scheduling.instance_termination_action == "DELETE"
    if purchase is Purchase.SPOT and not is_deleted:
        return "preempted instances would remain: instanceTerminationAction must be DELETE"
    if model == "RESERVATION_BOUND" and not is_deleted:
        return "instances would remain at the end: instanceTerminationAction must be DELETE"
    if purchase is Purchase.FLEX_START:
        longest_seconds = scheduling.max_run_duration.seconds
        if not is_deleted:
            return "expired instances would remain: instanceTerminationAction must be DELETE"
        if not 0 < longest_seconds <= _MAX_RUN_SECONDS:
            return f"maxRunDuration is {longest_seconds} s: it must be 7 days at most"
    return None


def _affinity_error(affinity: Any, pool: PoolForm) -> str | None:
    """Return why a template launches elsewhere than into the pool's reservation; None if not.

    Without this affinity Compute Engine would launch on demand what does not fit.
    """
    if pool.reservation is None:
        return None
    is_specific = affinity.consume_reservation_type == "SPECIFIC_RESERVATION"
    if is_specific and list(affinity.values) == [pool.reservation]:
        return None
    return f"reservationAffinity must be SPECIFIC_RESERVATION of {pool.reservation}"
