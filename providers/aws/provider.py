"""EC2 as a provider: what one deployment buys in the regions of its settings.

Each region is asked as a whole, never for one job: its instances in pages of a thousand, its
announcements from one queue. Launches go through `launching`, ends through `ending`; what is
remembered in between is in `register`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import boto3

from autoscaler.clock import Clock
from autoscaler.domain.errors import (
    NotFound,
    PermissionDenied,
    ProviderError,
    Unavailable,
)
from autoscaler.domain.instance import (
    CONTROLLER_TAG,
    CloudInstance,
    Interruption,
    LaunchRequest,
)
from autoscaler.domain.offer import Limit, Offer
from autoscaler.market.price_table import PriceTable
from providers.aws.calls import RegionCalls, call_budget
from providers.aws.ending import Ending
from providers.aws.identity import DocumentVerifier
from providers.aws.launching import Launching
from providers.aws.notices import Notices
from providers.aws.offering import RegionOffering
from providers.aws.parcels import BucketParcels
from providers.aws.replies import instances_in, told_instance
from providers.aws.settings import AwsSale, AwsSettings, Patience
from providers.base import Condition, Provider
from providers.cloud.budget import Rate
from providers.cloud.caps import Caps
from providers.cloud.register import Owned, Register
from providers.cloud.replies import readable
from providers.cloud.tags import TOKEN_TAG

_ALL_REGIONS: Final = "all regions"
_LAUNCHES: Final = "launches"
_MOST_IDS: Final = 200  # of one filter


class AwsProvider(Provider):
    """Sells the instances of `settings` to the deployment whose controller is `controller`.

    `session` has the credentials, `table` is the owner's price list, if there is one. Safe to
    share between threads.

    Raises:
        SpecError: nobody knows by whom a region's identity documents are signed.
    """

    def __init__(
        self,
        settings: AwsSettings,
        controller: str,
        clock: Clock,
        session: boto3.session.Session,
        *,
        patience: Patience = Patience(),
        table: PriceTable | None = None,
    ) -> None:
        self._controller = controller
        self._clock = clock
        self._patience = patience
        self._budget = call_budget(clock)
        rate = Rate(settings.launches_per_minute, settings.launches_per_minute / 60.0)
        self._budget.limit(_ALL_REGIONS, _LAUNCHES, rate)
        self._calls = {
            region: RegionCalls(region, settings, patience, session, self._budget)
            for region in settings.regions
        }
        self._register = Register(patience.visible_seconds)
        self._offering = {
            region: RegionOffering(settings, calls, patience, table, clock)
            for region, calls in self._calls.items()
        }
        self._notices = {
            region: Notices(
                calls, settings.regions[region].queue_url, self._register, patience, clock
            )
            for region, calls in self._calls.items()
        }
        self._caps = Caps("aws", settings, self._register, patience.visible_seconds, clock)
        self._ending = Ending(
            controller, self._calls, self._register, self._find, patience.visible_seconds, clock
        )
        self._launching = Launching(
            settings,
            self._calls,
            self._register,
            BucketParcels(settings, self._calls),
            self._find_token,
            clock,
        )
        self._sales: Mapping[str, AwsSale] = {}
        self._identity = DocumentVerifier(settings)

    @property
    def identity(self) -> DocumentVerifier:
        """What checks the identity documents of instances."""
        return self._identity

    def offers(self) -> Sequence[Offer]:
        """Every type, zone and purchase of every pool that has a price.

        Raises:
            ProviderError: types or prices can't be had; what was offered before may still be.
        """
        sold = [sale for region in self._offering.values() for sale in region.sales()]
        self._sales = {sale.offer.id: sale for sale in sold}
        self._caps.learn(self._sales)
        return [sale.offer for sale in sold]

    def limits(self) -> Sequence[Limit]:
        """The bounds of the settings, and the account's quotas."""
        sales = list(self._known_sales().values())
        quotas = [limit for region in self._offering.values() for limit in region.limits(sales)]
        return [*self._caps.limits(self._sales), *quotas]

    def launch(self, request: LaunchRequest) -> CloudInstance:
        """Launch one instance, or return the one of this token, which may have ended.

        Raises:
            PermissionDenied: the tags name another deployment, or AWS does not allow it.
            NotFound: there is no such offer, or not what the settings name.
            InsufficientCapacity: EC2 has none of it now.
            QuotaExceeded: a bound of the settings or a quota of the account leaves no room.
            Throttled: too many launches or calls; the same call again.
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
            self._budget.take(_ALL_REGIONS, _LAUNCHES)
            launched = self._launching.launch(request, sale, self._patience.visible_seconds)
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
        self._ending.end(instance_ids)

    def instances(self) -> Sequence[CloudInstance]:
        """What this deployment owns: ended ones for two hours, new ones from their launch on.

        Raises:
            ProviderError: of some region it is not known.
        """
        for region in self._calls:
            self._list(region)
        return [owned.instance for owned in self._register.all()]

    def interruptions(self) -> Sequence[Interruption]:
        """Announced reclaims and maintenances of instances that have not ended.

        They are hints: a queue that can't be read is in `deaf`, and hides nothing else.

        Raises:
            ProviderError: it is not known which instances there are.
        """
        self._know_own()
        return [notice for region in self._notices.values() for notice in region.interruptions()]

    def condition(self) -> Condition:
        """Offers without a price, queues that are not heard, and what EC2 wants back soon."""
        troubles = [f"{name}: no announcements: {why}" for name, why in self._deaf.items()]
        for name in sorted(closed for one in self._offering.values() for closed in one.closed):
            troubles.append(f"{name}: the quota is too small for one: ask for more of it")
        if dropped := sum(region.counts["poison"] for region in self._notices.values()):
            troubles.append(f"{dropped} messages could not be read since the start: see the log")
        at_risk = (region.rebalanced for region in self._notices.values())
        return Condition(self._left_out, tuple(troubles), frozenset().union(*at_risk))

    @property
    def _left_out(self) -> Mapping[str, str]:
        return {
            offer_id: reason
            for region in self._offering.values()
            for offer_id, reason in region.left_out.items()
        }

    @property
    def _deaf(self) -> Mapping[str, str]:
        return {name: why for name, region in self._notices.items() if (why := region.trouble)}

    def _known_sales(self) -> Mapping[str, AwsSale]:
        if not self._sales:
            self.offers()
        return self._sales

    def _know_own(self) -> None:
        """Nothing is bought or concluded before the cloud was asked what is there."""
        for region in self._calls:
            if self._register.asked_seconds(region) == -math.inf:
                self._list(region)

    def _list(self, region: str) -> None:
        asked_seconds = self._clock.now()
        listed = self._listed(region, [])
        self._register.take_in(region, listed, asked_seconds, self._clock.now())

    def _listed(self, region: str, filters: Sequence[Mapping[str, object]]) -> list[CloudInstance]:
        """The only way in which instances are looked for: among those with our tag."""
        own = {"Name": f"tag:{CONTROLLER_TAG}", "Values": [self._controller]}
        pages = self._calls[region].pages("DescribeInstances", Filters=[own, *filters])
        found = []
        for page in pages:
            with readable(f"{region}: DescribeInstances"):
                found += [told_instance(told) for told in instances_in(page)]
        return found

    def _find(self, region: str, instance_ids: Sequence[str]) -> list[Owned]:
        found = []
        for start in range(0, len(instance_ids), _MOST_IDS):
            few = list(instance_ids[start : start + _MOST_IDS])
            named = {"Name": "instance-id", "Values": few}
            found += [Owned(one, region) for one in self._listed(region, [named])]
        return found

    def _find_token(self, region: str, token: str) -> CloudInstance | None:
        named = {"Name": f"tag:{TOKEN_TAG}", "Values": [token]}
        return next(iter(self._listed(region, [named])), None)
