"""All providers combined: their offers, limits and listings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from autoscaler.clock import SystemClock
from autoscaler.controller.offers.rounds import Answer, ProviderRounds
from autoscaler.controller.workers import CallKind
from autoscaler.domain.errors import NotFound, Unavailable
from autoscaler.domain.instance import CloudInstance, HeldInstance, Interruption, LaunchRequest
from autoscaler.domain.offer import Limit, LimitUnit, Offer
from autoscaler.market.egress import egress_usd_per_gb
from autoscaler.market.live_prices import live_price
from autoscaler.market.prices import Discount, RefusedPrice
from providers.base import Condition, Provider

_SUBJECTS: Final = {CallKind.PRICE: "prices", CallKind.LIST: "its instances"}


@dataclass(frozen=True, slots=True)
class Listing:
    """Instances and interruptions in new listings, those of the providers in `answered`.

    `listed_seconds` is the time at which each provider was asked for its last listing. Nothing is
    known of a provider that is not in it. `listed_elsewhere` are the cloud ids in the last
    listings of the providers that are not in `answered`.
    """

    instances: tuple[CloudInstance, ...]
    interruptions: tuple[Interruption, ...]
    answered: frozenset[str]
    listed_seconds: Mapping[str, float]
    listed_elsewhere: frozenset[str]


@dataclass(frozen=True, slots=True)
class ProviderState:
    """Errors of the last look at a provider, empty if there were none, and its last condition.

    A provider is silent if its instances were not listed.
    """

    failures: tuple[str, ...] = ()
    condition: Condition = field(default_factory=Condition)
    is_silent: bool = False


def provider_errors(states: Mapping[str, ProviderState]) -> tuple[str, ...]:
    """Return the present errors of providers as text, those of the last look first."""
    failures = (failure for state in states.values() for failure in state.failures)
    conditions = ((name, state.condition) for name, state in states.items())
    troubles = (
        f"{name}: {trouble}"
        for name, known in conditions
        for trouble in (*known.silent_troubles, *known.troubles, *known.stranger_troubles)
    )
    return (*failures, *troubles)


class Market:
    """Providers of one deployment. A failure of one provider does not affect the others.

    `files_network` is the network of the storage with jobs' files; None for a shared disk.
    `rounds` ask the providers; None asks them inline. `require_lead` raises `NotLeading` before a
    launch, a termination or a console request if this controller may not make it.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        fleet_usd_per_hour: float | None,
        discounts: Sequence[Discount] = (),
        files_network: str | None = None,
        rounds: ProviderRounds | None = None,
        require_lead: Callable[[], None] = lambda: None,
    ) -> None:
        self._providers = providers
        self._rounds = rounds or ProviderRounds(providers, SystemClock())
        self._require_lead = require_lead
        self._answers: dict[tuple[str, CallKind], Answer] = {}
        self._conditions: dict[str, Condition] = {}
        self._listed: dict[str, frozenset[str]] = {}
        self._listed_seconds: dict[str, float] = {}
        self._fleet_usd_per_hour = fleet_usd_per_hour
        self._discounts = discounts
        self._files_network = files_network
        self._reported_offers: dict[str, tuple[Offer, ...]] = {}
        self._offers: dict[str, tuple[Offer, ...]] = {}
        self._limits: dict[str, tuple[Limit, ...]] = {}
        self._refused: dict[str, Mapping[str, str]] = {}
        self._asked_seconds: dict[str, float] = {}

    def refresh(self, now_seconds: float) -> Listing | None:
        """Begin the rounds of questions that are due, and take the answers that are complete.

        The last known offers and limits stay where a provider does not answer. Offers with an
        implausible price are left out and listed in `refused`.

        Returns:
            The new listings; None if no provider has answered since the last call.
        """
        self._rounds.begin_due(now_seconds)
        answers = self._rounds.take()
        for answer in answers:
            self._answers = {**self._answers, (answer.provider, answer.kind): answer}
            self._conditions = {**self._conditions, answer.provider: answer.condition}
            if answer.sold is not None:
                self._take_offers(answer.provider, answer.sold, answer.began_seconds)
        return self._listing(answers) if answers else None

    def _take_offers(
        self,
        name: str,
        sold: tuple[tuple[Offer, ...], tuple[Limit, ...]],
        asked_seconds: float,
    ) -> None:
        offers, limits = sold
        self._limits = {**self._limits, name: limits}
        self._asked_seconds[name] = asked_seconds
        if not _is_unchanged(offers, self._reported_offers.get(name)):
            self._reported_offers = {**self._reported_offers, name: offers}
            self._check_offers(name, offers, asked_seconds)

    def _listing(self, answers: Sequence[Answer]) -> Listing:
        listings = [answer for answer in answers if answer.listing is not None]
        instances: list[CloudInstance] = []
        interruptions: list[Interruption] = []
        for answer in listings:
            assert answer.listing is not None
            instances += answer.listing.instances
            interruptions += answer.listing.interruptions
            ids = frozenset(instance.id for instance in answer.listing.instances)
            self._listed = {**self._listed, answer.provider: ids}
            self._listed_seconds[answer.provider] = answer.began_seconds
        answered = frozenset(answer.provider for answer in listings)
        others = (ids for name, ids in self._listed.items() if name not in answered)
        return Listing(
            tuple(instances),
            tuple(interruptions),
            answered,
            dict(self._listed_seconds),
            frozenset[str]().union(*others),
        )

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
        self._offers = {**self._offers, name: tuple(offers)}
        self._refused = {**self._refused, name: refused}

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
        left_out = [condition.left_out for condition in self._conditions.values()]
        return {
            offer: reason
            for refused in (*left_out, *self._refused.values())
            for offer, reason in refused.items()
        }

    @property
    def states(self) -> Mapping[str, ProviderState]:
        """Last conditions of all providers, and errors of the last looks at them, by name."""
        problems = {
            (name, kind): f"{name}: has not answered for {seconds:.0f} s about {_SUBJECTS[kind]}"
            for (name, kind), seconds in self._rounds.overdue_seconds().items()
        }
        for key, answer in self._answers.items():
            if answer.error is not None:
                problems.setdefault(key, answer.error)
        names = sorted({*self._conditions, *(name for name, _ in problems)})
        return {name: self._state(name, problems) for name in names}

    def _state(self, name: str, problems: Mapping[tuple[str, CallKind], str]) -> ProviderState:
        failures = dict.fromkeys(problems[key] for key in problems if key[0] == name)
        is_silent = (name, CallKind.LIST) in problems
        condition = self._conditions.get(name, Condition())
        return ProviderState(tuple(failures), condition, is_silent)

    @property
    def at_risk(self) -> frozenset[str]:
        """Cloud ids of instances that are likely to be reclaimed: a hint to save checkpoints."""
        at_risk_ids = (condition.at_risk for condition in self._conditions.values())
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
        usd_per_hour, place = self._fleet_usd_per_hour, "castor serve --fleet-usd-per-hour"
        cap = Limit("fleet price", LimitUnit.USD_PER_HOUR, usd_per_hour, place=place)
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

    def launch(self, request: LaunchRequest) -> CloudInstance:
        """Launch an instance at the offer's provider.

        Errors are those of `Provider.launch`, and `NotLeading`.
        """
        self._require_lead()
        return self._seller(request.offer).launch(request)

    def _seller(self, offer_id: str) -> Provider:
        """Return the provider that sells an offer.

        Raises:
            NotFound: all providers have reported their offers, and none sells this one.
            Unavailable: none is known to sell it, and some have not reported since the start.
        """
        try:
            return self._providers[self.offer(offer_id).provider]
        except NotFound:
            unknown = sorted(self.names - self._offers.keys())
            if not unknown:
                raise
        names = ", ".join(unknown)
        raise Unavailable(f"offer {offer_id}: the offers of {names} are not known yet: retry")

    def terminate(self, offer_id: str, cloud_id: str) -> None:
        """Terminate an instance of that offer.

        If neither the offer nor the instance is known, all providers are asked. Errors are those
        of `Provider.terminate`, and `NotLeading`.
        """
        self._require_lead()
        name = self.provider_of(offer_id, cloud_id)
        for provider in [self._providers[name]] if name else self._providers.values():
            provider.terminate([cloud_id])

    def console(self, offer_id: str, cloud_id: str) -> str:
        """Return an instance's console output; empty if its offer is no longer sold.

        Errors are those of `Provider.console`, and `NotLeading`.
        """
        self._require_lead()
        name = self.provider_of(offer_id, cloud_id)
        return self._providers[name].console(cloud_id) if name else ""

    def provider_of(self, offer_id: str, cloud_id: str | None) -> str | None:
        """Return the provider that sells an offer, or else lists an instance; None if unknown."""
        for name, offers in self._reported_offers.items():
            if any(offer.id == offer_id for offer in offers):
                return name
        listed = self._listed.items()
        return next((name for name, ids in listed if cloud_id in ids), None)


def _is_unchanged(offers: Sequence[Offer], before: Sequence[Offer] | None) -> bool:
    """Return whether offers are unchanged, including the dates of their prices."""
    return offers == before and all(
        offer.priced_seconds == earlier.priced_seconds
        for offer, earlier in zip(offers, before, strict=True)
    )
