"""Shared base of cloud providers: sales within caps, and one launch for each token.

Each cloud's own provider adds its prices and calls.
"""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from autoscaler.clock import Clock
from autoscaler.domain.errors import NotFound, PermissionDenied, ProviderError, Unavailable
from autoscaler.domain.instance import CONTROLLER_TAG, CloudInstance, LaunchRequest
from autoscaler.domain.offer import Limit, Offer
from providers.base import Provider
from providers.cloud.budget import CallRateLimiter, Rate
from providers.cloud.caps import SpendingCaps
from providers.cloud.known_prices import KnownPrices
from providers.cloud.register import Owned, Register
from providers.cloud.sales import AnyPool, PoolBounds, Sale, SalesBounds
from providers.cloud.tags import POOL_TAG

_log = logging.getLogger(__name__)

_LAUNCHES: Final = "launches"

Pool = TypeVar("Pool", bound=PoolBounds)
Answer = Sequence[CloudInstance] | ProviderError
"""Every instance of this deployment in a scope, or the error of the list call."""


class CloudSettings(SalesBounds[AnyPool], Protocol[AnyPool]):
    """Settings of one cloud that bound what is bought, and how fast."""

    @property
    def launches_per_minute(self) -> int:
        """Maximum number of launches per minute."""
        ...


class CloudProvider(Provider, Generic[Pool]):
    """Provider of the instances of `settings` for the deployment of `controller`.

    `name` names the cap over all pools. `whole` names all regions together in errors. `prices`
    keeps the last known price of each offer; None keeps the prices in memory. `visible_seconds` is
    the maximum lag of the cloud's lists. Thread-safe if the subclass is.
    """

    def __init__(
        self,
        name: str,
        whole: str,
        settings: CloudSettings[Pool],
        controller: str,
        budget: CallRateLimiter,
        visible_seconds: float,
        clock: Clock,
        prices: KnownPrices | None = None,
    ) -> None:
        self._whole = whole
        self._controller = controller
        self._budget = budget
        self._clock = clock
        rate = Rate(settings.launches_per_minute, settings.launches_per_minute / 60.0)
        budget.limit(whole, _LAUNCHES, rate)
        self._register = Register(visible_seconds)
        self._known_prices = KnownPrices() if prices is None else prices
        self._caps = SpendingCaps(
            name, settings, self._register, visible_seconds, clock, self._known_prices
        )
        self._sales: Mapping[str, Sale[Pool]] = {}
        self._stale_scopes: Mapping[str, str] = {}
        self._was_ever_listed = False

    def offers(self) -> Sequence[Offer]:
        """Return an offer for every type, zone and purchase of every pool that has a price.

        Raises:
            ProviderError: types or prices are unavailable; earlier offers may still be valid.
        """
        sold = self._sold()
        self._sales = {sale.offer.id: sale for sale in sold}
        self._caps.learn(self._sales)
        return [sale.offer for sale in sold]

    def limits(self) -> Sequence[Limit]:
        """Return the caps of the settings and the cloud's quotas."""
        quotas = self._quotas(list(self._known_sales().values()))
        return [*self._caps.limits(self._sales), *quotas]

    def launch(self, request: LaunchRequest) -> CloudInstance:
        """Launch one instance, or return the instance of this token, which may have ended.

        Alternatives that the order can't name are ignored. The caps reserve the dearest offer.

        Raises:
            PermissionDenied: the tags name another deployment, or the cloud denies the launch.
            NotFound: no such offer exists, or the cloud lacks something that the settings name.
            InsufficientCapacity: the cloud has no capacity for the offer now.
            QuotaExceeded: a cap of the settings or a quota leaves no room.
            Throttled: too many launches or calls; repeat the same call.
            UnknownRefusal: nothing was launched, for a reason without a rule.
            Unavailable: the outcome is unknown; repeat the same call to learn it.
        """
        if request.tags.get(CONTROLLER_TAG) != self._controller:
            raise PermissionDenied(f"tags: {CONTROLLER_TAG} must be {self._controller}")
        sale = self._known_sales().get(request.offer)
        if sale is None:
            reason = self._left_out.get(request.offer, "no pool of the settings contains it")
            raise NotFound(f"offer {request.offer}: {reason}")
        self._ensure_listed()
        registered = self._register.of_token(request.token)
        if registered is not None:
            return registered.instance
        alternatives = self._alternatives(request, sale)
        dearest = max((sale, *alternatives), key=lambda asked: asked.most_usd_per_hour)
        self._caps.reserve(request.token, dearest)
        try:
            self._budget.take(self._whole, _LAUNCHES)
            launched = self._send(request, sale, alternatives)
        except Unavailable:
            self._caps.unknown(request.token)
            raise
        except ProviderError:
            self._caps.refused(request.token)
            raise
        self._caps.launched(request.token)
        return launched

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Request the end of this deployment's instances. Ended instances count as done.

        Raises:
            PermissionDenied, Throttled, Unavailable: some requests may not have been accepted.
        """
        self._end(instance_ids)

    def instances(self) -> Sequence[CloudInstance]:
        """Return this deployment's instances: new ones at once, ended ones for two hours.

        Instances of a scope that does not answer are as last seen; `condition` says so.

        Raises:
            ProviderError: no scope answers, or a scope has never answered.
        """
        self._list()
        return [owned.instance for owned in self._register.all()]

    def rehearse(self, offer_id: str) -> bool:
        """Ask whether a launch would be permitted; see `Provider.rehearse`."""
        sale = self._known_sales().get(offer_id)
        if sale is None:
            raise NotFound(f"offer {offer_id}: no pool of the settings contains it")
        return self._rehearse(sale)

    def console(self, instance_id: str) -> str:
        """Return an instance's console output; see `Provider.console`."""
        owned = self._register.find(instance_id)
        return "" if owned is None else self._console(owned)

    @property
    def silent_scopes(self) -> frozenset[str]:
        """Scopes that did not answer the last list: instances may run there unseen."""
        return frozenset(self._stale_scopes)

    @property
    @abstractmethod
    def _left_out(self) -> Mapping[str, str]:
        """Reasons why offers can't be bought, by offer id."""

    @abstractmethod
    def _sold(self) -> Sequence[Sale[Pool]]:
        """Return the offers that are sold now."""

    @abstractmethod
    def _quotas(self, sales: Sequence[Sale[Pool]]) -> Sequence[Limit]:
        """Return the cloud's quotas that bound these sales."""

    @abstractmethod
    def _send(
        self, request: LaunchRequest, sale: Sale[Pool], alternatives: Sequence[Sale[Pool]]
    ) -> CloudInstance:
        """Launch an instance of the sale or an alternative, and add it to the register."""

    def _alternatives(self, request: LaunchRequest, sale: Sale[Pool]) -> list[Sale[Pool]]:
        """Return the alternatives that are sold and that one order can name beside a sale."""
        group, sales = sale.offer.order_group, self._known_sales()
        named = [sales[name] for name in request.alternatives if name in sales]
        return [asked for asked in named if group and asked.offer.order_group == group]

    def _rehearse(self, sale: Sale[Pool]) -> bool:
        """Ask whether a launch would be permitted; False if the cloud can't be asked."""
        return False

    @abstractmethod
    def _console(self, owned: Owned) -> str:
        """Return the console output of an instance."""

    @abstractmethod
    def _end(self, instance_ids: Sequence[str]) -> None:
        """Request the end of those instances that this deployment owns."""

    @abstractmethod
    def _ask(self) -> Mapping[str, Answer]:
        """Return the list of each scope that may hold instances of this deployment.

        Raises:
            ProviderError: no scope can be listed.
        """

    @property
    def _shared_troubles(self) -> list[str]:
        """The error of saving prices, if any."""
        unsaved = self._known_prices.trouble
        return [] if unsaved is None else [unsaved]

    def _list(self) -> None:
        """Update the register. A scope that does not answer keeps its instances."""
        asked_seconds = self._clock.now()
        answers = self._ask()
        now_seconds = self._clock.now()
        errors: dict[str, ProviderError] = {}
        for scope, answer in answers.items():
            if isinstance(answer, ProviderError):
                errors[scope] = answer
            else:
                self._register.take_in(scope, answer, asked_seconds, now_seconds)
        no_scope_answers = len(errors) == len(answers)
        for scope, error in errors.items():
            if no_scope_answers or not self._was_listed(scope):
                self._stale_scopes = {}
                raise error
        self._note_silent_scopes(errors)
        self._was_ever_listed = True

    def _note_silent_scopes(self, errors: Mapping[str, ProviderError]) -> None:
        for scope, error in errors.items():
            if scope not in self._stale_scopes:
                _log.warning("%s is not listed: %s", scope, error)
        self._stale_scopes = {scope: str(error) for scope, error in errors.items()}

    def _was_listed(self, scope: str) -> bool:
        return self._register.asked_seconds(scope) > -math.inf

    def _known_sales(self) -> Mapping[str, Sale[Pool]]:
        if not self._sales:
            self.offers()
        return self._sales

    def _held(self, pools: Collection[str]) -> int:
        """Return the number of instances in pools of these names that have not ended."""
        self._ensure_listed()
        return sum(
            owned.instance.tags.get(POOL_TAG) in pools and not owned.has_ended
            for owned in self._register.all()
        )

    def _ensure_listed(self) -> None:
        """List the instances once before the first launch, so that no token launches twice."""
        if not self._was_ever_listed:
            self._list()


def small_quotas(names: Iterable[str]) -> tuple[str, ...]:
    """Return what a person can do about quotas without room for one instance or device."""
    return tuple(
        f"{name}: the quota is too small for one: request an increase" for name in sorted(names)
    )
