"""All providers combined: their offers, limits and listings."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.domain.errors import NotFound, ProviderError
from autoscaler.domain.instance import CloudInstance, HeldInstance, Interruption, LaunchRequest
from autoscaler.domain.offer import Limit, LimitUnit, Offer
from autoscaler.market.egress import egress_usd_per_gb
from autoscaler.market.live_prices import live_price
from autoscaler.market.prices import Discount, RefusedPrice
from providers.base import Provider

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listing:
    """Instances and interruptions in the providers' listings.

    Nothing is known of a provider that is not in `answered`.
    """

    instances: tuple[CloudInstance, ...]
    interruptions: tuple[Interruption, ...]
    answered: frozenset[str]


class Market:
    """Providers of one deployment. A failure of one provider does not affect the others.

    `files_network` is the network of the storage with jobs' files; None for a shared disk.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        fleet_usd_per_hour: float | None,
        discounts: Sequence[Discount] = (),
        files_network: str | None = None,
    ) -> None:
        self._providers = providers
        self._fleet_usd_per_hour = fleet_usd_per_hour
        self._discounts = discounts
        self._files_network = files_network
        self._reported_offers: dict[str, tuple[Offer, ...]] = {}
        self._offers: dict[str, tuple[Offer, ...]] = {}
        self._limits: dict[str, tuple[Limit, ...]] = {}
        self._refused: dict[str, Mapping[str, str]] = {}
        self._asked_seconds: dict[str, float] = {}
        self._errors: dict[str, str] = {}

    def refresh(self, now_seconds: float) -> None:
        """Ask for offers and limits; the last known ones stay where a provider does not answer.

        Offers with an implausible price are left out and listed in `refused`.
        """
        self._errors.clear()
        for name, provider in self._providers.items():
            try:
                offers = tuple(provider.offers())
                self._limits[name] = tuple(provider.limits())
            except ProviderError as error:
                self._record_error(name, error)
                continue
            self._asked_seconds[name] = now_seconds
            if not _is_unchanged(offers, self._reported_offers.get(name)):
                self._reported_offers[name] = offers
                self._check_offers(name, offers, now_seconds)

    def _check_offers(self, name: str, reported: Sequence[Offer], now_seconds: float) -> None:
        offers, refused = [], {}
        for offer in reported:
            price = live_price(offer, self._discounts, now_seconds)
            if isinstance(price, RefusedPrice):
                refused[offer.id] = price.reason
                continue
            if price.usd_per_hour != offer.usd_per_hour:
                offer = replace(offer, usd_per_hour=price.usd_per_hour, price_source=price.source)
            offers.append(self._with_transfer_prices(offer))
        self._offers[name], self._refused[name] = tuple(offers), refused

    def _with_transfer_prices(self, offer: Offer) -> Offer:
        """Return the offer with the prices of sending jobs' files to their storage and back."""
        files_network = self._files_network
        if files_network is None:
            return offer
        return replace(
            offer,
            upload_usd_per_gb=egress_usd_per_gb(offer.network, files_network),
            download_usd_per_gb=egress_usd_per_gb(files_network, offer.network),
        )

    @property
    def refused(self) -> Mapping[str, str]:
        """The reasons why offers are left out, by offer: unavailable, or an implausible price."""
        left_out = [provider.condition().left_out for provider in self._providers.values()]
        return {
            offer: reason
            for refused in (*left_out, *self._refused.values())
            for offer, reason in refused.items()
        }

    @property
    def trouble(self) -> str | None:
        """The present errors of providers as text; None without errors."""
        errors = list(self._errors.values())
        for name, provider in self._providers.items():
            condition = provider.condition()
            troubles = (*condition.troubles, *condition.stranger_troubles)
            errors += [f"{name}: {trouble}" for trouble in troubles]
        return "; ".join(errors) or None

    @property
    def silent(self) -> frozenset[str]:
        """The providers that did not answer the last request."""
        return frozenset(self._errors)

    @property
    def at_risk(self) -> frozenset[str]:
        """Cloud ids of instances that are likely to be reclaimed: a hint to save checkpoints."""
        at_risk_ids = (provider.condition().at_risk for provider in self._providers.values())
        return frozenset[str]().union(*at_risk_ids)

    @property
    def names(self) -> frozenset[str]:
        """The names of all providers."""
        return frozenset(self._providers)

    @property
    def asked_seconds(self) -> Mapping[str, float]:
        """The time of each provider's last answer, in seconds since the Unix epoch."""
        return dict(self._asked_seconds)

    @property
    def offers(self) -> tuple[Offer, ...]:
        """All offers at the last request."""
        return tuple(offer for offers in self._offers.values() for offer in offers)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """All limits, including the fleet's price limit."""
        limits = tuple(limit for limits in self._limits.values() for limit in limits)
        if self._fleet_usd_per_hour is None:
            return limits
        cap = Limit("fleet price", LimitUnit.USD_PER_HOUR, self._fleet_usd_per_hour)
        return (*limits, cap)

    def limits_beside_unsold(self, held: Iterable[HeldInstance]) -> tuple[Limit, ...]:
        """Return all limits, with the fleet's price limit reduced by held offers no longer sold.

        An instance whose pool was removed or renamed continues to cost its last known price.
        """
        if self._fleet_usd_per_hour is None:
            return self.limits
        sold = {offer.id for offer in self.offers}
        unsold = (instance.usd_per_hour for instance in held if instance.offer not in sold)
        *limits, cap = self.limits
        left_usd_per_hour = max(cap.maximum - float(sum(unsold)), 0.0)
        return (*limits, replace(cap, maximum=left_usd_per_hour))

    def offer(self, offer_id: str) -> Offer:
        """Return the offer of this id.

        Raises:
            NotFound: the offer is no longer available.
        """
        for offer in self.offers:
            if offer.id == offer_id:
                return offer
        raise NotFound(f"offer {offer_id} is no longer available")

    def listing(self) -> Listing:
        """Return the listings of all providers that answer."""
        instances: list[CloudInstance] = []
        interruptions: list[Interruption] = []
        answered: set[str] = set()
        for name, provider in self._providers.items():
            try:
                listed = provider.instances()
                notices = provider.interruptions()
            except ProviderError as error:
                self._record_error(name, error)
                continue
            instances.extend(listed)
            interruptions.extend(notices)
            answered.add(name)
        return Listing(tuple(instances), tuple(interruptions), frozenset(answered))

    def launch(self, request: LaunchRequest) -> CloudInstance:
        """Launch an instance at the offer's provider; errors are those of `Provider.launch`."""
        return self._providers[self.offer(request.offer).provider].launch(request)

    def terminate(self, offer_id: str, cloud_id: str) -> None:
        """Terminate an instance of that offer; errors are those of `Provider.terminate`.

        If the offer is unknown, all providers are asked.
        """
        name = self._provider_of(offer_id)
        for provider in [self._providers[name]] if name else self._providers.values():
            provider.terminate([cloud_id])

    def console(self, offer_id: str, cloud_id: str) -> str:
        """Return an instance's console output; empty if its offer is no longer sold.

        Errors are those of `Provider.console`.
        """
        name = self._provider_of(offer_id)
        return self._providers[name].console(cloud_id) if name else ""

    def _provider_of(self, offer_id: str) -> str | None:
        for name, offers in self._reported_offers.items():
            if any(offer.id == offer_id for offer in offers):
                return name
        return None

    def _record_error(self, name: str, error: ProviderError) -> None:
        self._errors[name] = f"{name}: {error}"
        _log.warning("provider %s does not answer: %s", name, error)


def _is_unchanged(offers: Sequence[Offer], before: Sequence[Offer] | None) -> bool:
    """Return whether offers are unchanged, including the dates of their prices."""
    return offers == before and all(
        offer.priced_seconds == earlier.priced_seconds
        for offer, earlier in zip(offers, before, strict=True)
    )
