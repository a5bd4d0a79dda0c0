"""EC2 as a provider: what one deployment buys in the regions of its settings.

Each region is asked as a whole, never for one job: its instances in pages of a thousand, its
announcements from one queue. Launches go through `launching`, ends through `ending`; what is
remembered in between is in `register`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import boto3

from autoscaler.clock import Clock
from autoscaler.domain.errors import ProviderError
from autoscaler.domain.instance import (
    CONTROLLER_TAG,
    CloudInstance,
    Interruption,
    LaunchRequest,
)
from autoscaler.domain.offer import Limit
from autoscaler.market.price_table import PriceTable
from providers.aws.calls import RegionCalls, call_budget
from providers.aws.ending import Ending
from providers.aws.identity import DocumentVerifier
from providers.aws.launching import Launching
from providers.aws.notices import Notices
from providers.aws.offering import RegionOffering
from providers.aws.parcels import BucketParcels
from providers.aws.replies import instances_in, told_instance
from providers.aws.settings import AwsSale, AwsSettings, Patience, PoolForm
from providers.base import Condition
from providers.cloud.asking import asked_at_once
from providers.cloud.known_prices import KnownPrices
from providers.cloud.provider import Answer, CloudProvider
from providers.cloud.register import Owned
from providers.cloud.replies import readable
from providers.cloud.tags import TOKEN_TAG

_ALL_REGIONS: Final = "all regions"
_MOST_IDS: Final = 200  # of one filter


class AwsProvider(CloudProvider[PoolForm]):
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
        prices: KnownPrices | None = None,
    ) -> None:
        budget = call_budget(clock)
        super().__init__(
            "aws",
            _ALL_REGIONS,
            settings,
            controller,
            budget,
            patience.visible_seconds,
            clock,
            prices,
        )
        self._patience = patience
        self._calls = {
            region: RegionCalls(region, settings, patience, session, budget)
            for region in settings.regions
        }
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
        self._identity = DocumentVerifier(settings)

    @property
    def identity(self) -> DocumentVerifier:
        """What checks the identity documents of instances."""
        return self._identity

    def interruptions(self) -> Sequence[Interruption]:
        """Announced reclaims and maintenances of instances that have not ended.

        They are hints: a queue that can't be read is told by `condition`, and hides nothing else.

        Raises:
            ProviderError: it is not known which instances there are.
        """
        self._know_own()
        heard = asked_at_once(Notices.interruptions, self._notices.values())
        return [notice for of_region in heard for notice in of_region]

    def condition(self) -> Condition:
        """Offers without a price, what is not listed or heard, and what EC2 wants back soon."""
        troubles = self._silences
        troubles += [f"{name}: no announcements: {why}" for name, why in self._deaf.items()]
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

    def _sold(self) -> Sequence[AwsSale]:
        return [sale for region in self._offering.values() for sale in region.sales()]

    def _quotas(self, sales: Sequence[AwsSale]) -> Sequence[Limit]:
        return [limit for region in self._offering.values() for limit in region.limits(sales)]

    def _send(self, request: LaunchRequest, sale: AwsSale) -> CloudInstance:
        return self._launching.launch(request, sale, self._patience.visible_seconds)

    def _end(self, instance_ids: Sequence[str]) -> None:
        self._ending.end(instance_ids)

    def _ask(self) -> dict[str, Answer]:
        return dict(zip(self._calls, asked_at_once(self._answer, self._calls), strict=True))

    def _answer(self, region: str) -> Answer:
        try:
            return self._listed(region, [])
        except ProviderError as error:
            return error

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
