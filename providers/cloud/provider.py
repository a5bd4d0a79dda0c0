"""What providers of clouds do alike: sell within caps, and launch once for each token.

What only one cloud has, its prices, its calls and its words for them, its own provider adds.
"""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from autoscaler.clock import Clock
from autoscaler.domain.errors import NotFound, PermissionDenied, ProviderError, Unavailable
from autoscaler.domain.instance import CONTROLLER_TAG, CloudInstance, LaunchRequest
from autoscaler.domain.offer import Limit, Offer
from providers.base import Provider
from providers.cloud.budget import CallBudget, Rate
from providers.cloud.caps import Caps
from providers.cloud.known_prices import KnownPrices
from providers.cloud.register import Register
from providers.cloud.sales import AnyPool, Bounds, PoolBounds, Sale

_log = logging.getLogger(__name__)

_LAUNCHES: Final = "launches"

Pool = TypeVar("Pool", bound=PoolBounds)
Answer = Sequence[CloudInstance] | ProviderError
"""All instances of ours that a scope lists, or why it does not."""


class CloudSettings(Bounds[AnyPool], Protocol[AnyPool]):
    """The settings of one cloud, as far as they bound what is bought, and how fast."""

    @property
    def launches_per_minute(self) -> int:
        """So many at most."""
        ...


class CloudProvider(Provider, Generic[Pool]):
    """Sells the instances of `settings` to the deployment whose controller is `controller`.

    `name` is what its bound of all pools goes by, and `whole` what errors call all of its regions.
    `prices` keeps the last known price of each offer; None keeps them in memory.
    Safe to share between threads, if what it is completed by is.
    """

    def __init__(
        self,
        name: str,
        whole: str,
        settings: CloudSettings[Pool],
        controller: str,
        budget: CallBudget,
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
        known = KnownPrices() if prices is None else prices
        self._caps = Caps(name, settings, self._register, visible_seconds, clock, known)
        self._sales: Mapping[str, Sale[Pool]] = {}
        self._silent: Mapping[str, str] = {}
        self._knows_own = False

    def offers(self) -> Sequence[Offer]:
        """Every type, zone and purchase of every pool that has a price.

        Raises:
            ProviderError: types or prices can't be had; what was offered before may still be.
        """
        sold = self._sold()
        self._sales = {sale.offer.id: sale for sale in sold}
        self._caps.learn(self._sales)
        return [sale.offer for sale in sold]

    def limits(self) -> Sequence[Limit]:
        """The bounds of the settings, and the cloud's quotas."""
        quotas = self._quotas(list(self._known_sales().values()))
        return [*self._caps.limits(self._sales), *quotas]

    def launch(self, request: LaunchRequest) -> CloudInstance:
        """Launch one instance, or return the one of this token, which may have ended.

        Raises:
            PermissionDenied: the tags name another deployment, or the cloud does not allow it.
            NotFound: there is no such offer, or not what the settings name.
            InsufficientCapacity: the cloud has none of it now.
            QuotaExceeded: a bound of the settings or a quota leaves no room.
            Throttled: too many launches or calls; the same call again.
            UnknownRefusal: nothing was launched, for a reason without a rule.
            Unavailable: not known what came of it; the same call again finds out.
        """
        if request.tags.get(CONTROLLER_TAG) != self._controller:
            raise PermissionDenied(f"tags: {CONTROLLER_TAG} must be {self._controller}")
        sale = self._known_sales().get(request.offer)
        if sale is None:
            reason = self._left_out.get(request.offer, "no pool of the settings has it")
            raise NotFound(f"offer {request.offer}: {reason}")
        self._know_own()
        known = self._register.of_token(request.token)
        if known is not None:
            return known.instance
        self._caps.reserve(request.token, sale)
        try:
            self._budget.take(self._whole, _LAUNCHES)
            launched = self._send(request, sale)
        except Unavailable:
            self._caps.unknown(request.token)
            raise
        except ProviderError:
            self._caps.refused(request.token)
            raise
        self._caps.launched(request.token)
        return launched

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """End those of them that this deployment owns. Those that are gone count as done.

        Raises:
            PermissionDenied, Throttled, Unavailable: some may not have been told.
        """
        self._end(instance_ids)

    def instances(self) -> Sequence[CloudInstance]:
        """What this deployment owns: ended ones for two hours, new ones from their launch on.

        Those of a scope that does not answer are as they were last seen, and `condition` says so.

        Raises:
            ProviderError: no scope answers, or one has not answered yet.
        """
        self._list()
        return [owned.instance for owned in self._register.all()]

    @property
    @abstractmethod
    def _left_out(self) -> Mapping[str, str]:
        """Why offers can't be bought, by offer."""

    @abstractmethod
    def _sold(self) -> Sequence[Sale[Pool]]:
        """What is sold now."""

    @abstractmethod
    def _quotas(self, sales: Sequence[Sale[Pool]]) -> Sequence[Limit]:
        """What the cloud allows of these."""

    @abstractmethod
    def _send(self, request: LaunchRequest, sale: Sale[Pool]) -> CloudInstance:
        """Launch it, and have it in the register."""

    @abstractmethod
    def _end(self, instance_ids: Sequence[str]) -> None:
        """End those of them that are ours."""

    @abstractmethod
    def _ask(self) -> Mapping[str, Answer]:
        """Ask for what there is in each scope where something of ours may be.

        Raises:
            ProviderError: it can't be asked of any.
        """

    @property
    def _silences(self) -> list[str]:
        """Of which scopes it is not known what there is now, a line each."""
        silent = self._silent.items()
        return [f"instances of {scope} are as last seen: {why}" for scope, why in silent]

    def _list(self) -> None:
        """Bring the register up to date. What a silent scope has neither ends nor makes room."""
        asked_seconds = self._clock.now()
        answers = self._ask()
        now_seconds = self._clock.now()
        silent: dict[str, ProviderError] = {}
        for scope, answer in answers.items():
            if isinstance(answer, ProviderError):
                silent[scope] = answer
            else:
                self._register.take_in(scope, answer, asked_seconds, now_seconds)
        is_all_silent = len(silent) == len(answers)
        for scope, error in silent.items():
            if is_all_silent or not self._was_listed(scope):
                self._silent = {}
                raise error
        self._tell(silent)
        self._knows_own = True

    def _tell(self, silent: Mapping[str, ProviderError]) -> None:
        for scope, error in silent.items():
            if scope not in self._silent:
                _log.warning("%s is not listed: %s", scope, error)
        self._silent = {scope: str(error) for scope, error in silent.items()}

    def _was_listed(self, scope: str) -> bool:
        return self._register.asked_seconds(scope) > -math.inf

    def _known_sales(self) -> Mapping[str, Sale[Pool]]:
        if not self._sales:
            self.offers()
        return self._sales

    def _know_own(self) -> None:
        """Nothing is bought or concluded before the cloud was asked what is there."""
        if not self._knows_own:
            self._list()
