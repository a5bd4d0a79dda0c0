"""All providers as one: what they offer, what they limit, what they say there is."""

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
    """What the clouds say there is. Of a provider that is not in `answered` nothing is known."""

    instances: tuple[CloudInstance, ...]
    interruptions: tuple[Interruption, ...]
    answered: frozenset[str]


class Market:
    """The providers of one deployment. What one of them fails at is not the others' trouble.

    `files_network` is the network of where jobs keep their files; None where all see a disk.
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
        self._told: dict[str, tuple[Offer, ...]] = {}
        self._offers: dict[str, tuple[Offer, ...]] = {}
        self._limits: dict[str, tuple[Limit, ...]] = {}
        self._refused: dict[str, Mapping[str, str]] = {}
        self._asked_seconds: dict[str, float] = {}
        self._silent: dict[str, str] = {}

    def refresh(self, now_seconds: float) -> None:
        """Ask for offers and limits; of a provider that does not answer the last known stay.

        An offer whose price can't be one is left out, and is in `refused`.
        """
        self._silent.clear()
        for name, provider in self._providers.items():
            try:
                told = tuple(provider.offers())
                self._limits[name] = tuple(provider.limits())
            except ProviderError as error:
                self._note(name, error)
                continue
            self._asked_seconds[name] = now_seconds
            if not _is_same(told, self._told.get(name)):
                self._told[name] = told
                self._take_in(name, told, now_seconds)

    def _take_in(self, name: str, told: Sequence[Offer], now_seconds: float) -> None:
        offers, refused = [], {}
        for offer in told:
            price = live_price(offer, self._discounts, now_seconds)
            if isinstance(price, RefusedPrice):
                refused[offer.id] = price.reason
                continue
            if price.usd_per_hour != offer.usd_per_hour:
                offer = replace(offer, usd_per_hour=price.usd_per_hour, price_source=price.source)
            offers.append(self._with_ways(offer))
        self._offers[name], self._refused[name] = tuple(offers), refused

    def _with_ways(self, offer: Offer) -> Offer:
        """With what it costs to send jobs' files from there and back, if they lie elsewhere."""
        home = self._files_network
        if home is None:
            return offer
        return replace(
            offer,
            upload_usd_per_gb=egress_usd_per_gb(offer.network, home),
            download_usd_per_gb=egress_usd_per_gb(home, offer.network),
        )

    @property
    def refused(self) -> Mapping[str, str]:
        """Why offers are left out, by offer: what can't be bought, or its price can't be one."""
        left_out = [provider.condition().left_out for provider in self._providers.values()]
        return {
            offer: why
            for refused in (*left_out, *self._refused.values())
            for offer, why in refused.items()
        }

    @property
    def trouble(self) -> str | None:
        """What does not work, in words; None if all does."""
        said = list(self._silent.values())
        for name, provider in self._providers.items():
            said += [f"{name}: {trouble}" for trouble in provider.condition().troubles]
        return "; ".join(said) or None

    @property
    def silent(self) -> frozenset[str]:
        """The providers that did not answer when last asked."""
        return frozenset(self._silent)

    @property
    def at_risk(self) -> frozenset[str]:
        """What the clouds would rather have back, by their own ids: a hint to save."""
        told = (provider.condition().at_risk for provider in self._providers.values())
        return frozenset[str]().union(*told)

    @property
    def names(self) -> frozenset[str]:
        """The names of all providers."""
        return frozenset(self._providers)

    @property
    def asked_seconds(self) -> Mapping[str, float]:
        """When each provider answered last."""
        return dict(self._asked_seconds)

    @property
    def offers(self) -> tuple[Offer, ...]:
        """All that was offered when last asked."""
        return tuple(offer for offers in self._offers.values() for offer in offers)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """All limits, the fleet's own cap among them."""
        limits = tuple(limit for limits in self._limits.values() for limit in limits)
        if self._fleet_usd_per_hour is None:
            return limits
        cap = Limit("fleet budget", LimitUnit.USD_PER_HOUR, self._fleet_usd_per_hour)
        return (*limits, cap)

    def limits_beside_unsold(self, held: Iterable[HeldInstance]) -> tuple[Limit, ...]:
        """Return all limits, the fleet's own cap less what is held of offers no longer sold.

        An instance whose pool was removed or renamed goes on costing its last known price.
        """
        if self._fleet_usd_per_hour is None:
            return self.limits
        sold = {offer.id for offer in self.offers}
        unsold = (each.usd_per_hour for each in held if each.offer not in sold)
        *limits, cap = self.limits
        left_usd_per_hour = max(cap.maximum - float(sum(unsold)), 0.0)
        return (*limits, replace(cap, maximum=left_usd_per_hour))

    def offer(self, offer_id: str) -> Offer:
        """The offer of this id.

        Raises:
            NotFound: nobody offers it any more.
        """
        for offer in self.offers:
            if offer.id == offer_id:
                return offer
        raise NotFound(f"offer {offer_id}: nobody offers it any more")

    def listing(self) -> Listing:
        """What every provider says there is."""
        instances: list[CloudInstance] = []
        interruptions: list[Interruption] = []
        answered: set[str] = set()
        for name, provider in self._providers.items():
            try:
                found = provider.instances()
                notices = provider.interruptions()
            except ProviderError as error:
                self._note(name, error)
                continue
            instances.extend(found)
            interruptions.extend(notices)
            answered.add(name)
        return Listing(tuple(instances), tuple(interruptions), frozenset(answered))

    def launch(self, request: LaunchRequest) -> CloudInstance:
        """Launch at the offer's provider; errors are those of `Provider.launch`."""
        return self._providers[self.offer(request.offer).provider].launch(request)

    def terminate(self, offer_id: str, cloud_id: str) -> None:
        """Terminate an instance of that offer; errors are those of `Provider.terminate`."""
        name = self._provider_of(offer_id)
        for provider in [self._providers[name]] if name else self._providers.values():
            provider.terminate([cloud_id])

    def _provider_of(self, offer_id: str) -> str | None:
        for name, offers in self._told.items():
            if any(offer.id == offer_id for offer in offers):
                return name
        return None

    def _note(self, name: str, error: ProviderError) -> None:
        self._silent[name] = f"{name}: {error}"
        _log.warning("provider %s does not answer: %s", name, error)


def _is_same(told: Sequence[Offer], before: Sequence[Offer] | None) -> bool:
    """Whether nothing has changed, the dates of the prices included."""
    return told == before and all(
        one.priced_seconds == other.priced_seconds for one, other in zip(told, before, strict=True)
    )
