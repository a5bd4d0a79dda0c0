"""Provider for EC2: the instances of one deployment in the regions of its settings.

Each call concerns a whole region, never one job: instances are listed in pages of a thousand, and
notices are read from one queue. `launching` launches and `ending` ends instances; `register` keeps
them in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import boto3

from autoscaler.clock import Clock
from autoscaler.domain.errors import NotFound, ProviderError
from autoscaler.domain.instance import (
    CONTROLLER_TAG,
    CloudInstance,
    CloudState,
    Interruption,
    LaunchRequest,
)
from autoscaler.domain.offer import Limit, Purchase
from autoscaler.market.price_table import PriceTable
from providers.aws.calls import RegionCalls, call_budget
from providers.aws.ending import TerminateCalls
from providers.aws.identity import DocumentVerifier
from providers.aws.launching import Launching
from providers.aws.notices import Notices
from providers.aws.offering import RegionOffering
from providers.aws.replies import instances_in, told_instance
from providers.aws.settings import AwsSale, AwsSettings, CallTimeouts, PoolForm
from providers.aws.user_data import BucketUserData
from providers.base import Condition, SpotScores
from providers.cloud.asking import map_concurrently
from providers.cloud.facts import TTLValue
from providers.cloud.known_prices import KnownPrices
from providers.cloud.provider import Answer, CloudProvider, small_quotas
from providers.cloud.register import Owned
from providers.cloud.replies import readable
from providers.cloud.run_ends import run_end_notice
from providers.cloud.stock import parts_of
from providers.cloud.tags import DEPLOYMENT_TAG, TOKEN_TAG

_ALL_REGIONS: Final = "all regions"
_MAX_FILTER_IDS: Final = 200  # values of one filter
_LEAVE_SECONDS: Final = 600.0
_RUNNING: Final = (CloudState.PENDING, CloudState.RUNNING)
_STAYING: Final = ("pending", "running", "stopping", "stopped")  # billed: stopped ones for disks


class AwsProvider(CloudProvider[PoolForm]):
    """Provider of EC2 instances for the deployment of `controller`.

    `session` has the credentials. `table` is the owner's price list, or None. Thread-safe.

    Raises:
        SpecError: the certificate for a region's identity documents is unknown.
    """

    def __init__(
        self,
        settings: AwsSettings,
        controller: str,
        clock: Clock,
        session: boto3.session.Session,
        *,
        patience: CallTimeouts = CallTimeouts(),
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
        self._settings = settings
        self._patience = patience
        self._calls = {
            region: RegionCalls(region, settings, patience, session, budget)
            for region in settings.regions
        }
        self._offering = {
            region: RegionOffering(settings, calls, patience, table, self._held, clock)
            for region, calls in self._calls.items()
        }
        self._notices = {
            region: Notices(
                calls, settings.regions[region].queue_url, self._register, patience, clock
            )
            for region, calls in self._calls.items()
        }
        self._ending = TerminateCalls(
            controller, self._calls, self._register, self._find, patience.visible_seconds, clock
        )
        self._launching = Launching(
            settings,
            self._calls,
            self._register,
            BucketUserData(settings, self._calls),
            self._find_token,
            clock,
        )
        self._identity = DocumentVerifier(settings)
        self._strangers: dict[str, TTLValue[Counter[str]]] = {
            region: TTLValue(
                partial(self._count_strangers, region),
                patience.prices_seconds,
                patience.retry_seconds,
                clock,
            )
            for region in settings.regions
        }

    @property
    def identity(self) -> DocumentVerifier:
        """Verifier of instances' identity documents."""
        return self._identity

    def interruptions(self) -> Sequence[Interruption]:
        """Return announced reclaims, maintenance and ends of maximum runs of living instances.

        A queue that can't be read is reported by `condition` and does not affect other regions.

        Raises:
            ProviderError: the deployment's instances can't be listed.
        """
        self._ensure_listed()
        notices_by_region = map_concurrently(Notices.interruptions, self._notices.values())
        announced = {notice.instance: notice for notice in self._due_run_ends()}
        announced |= {notice.instance: notice for part in notices_by_region for notice in part}
        return list(announced.values())

    def _due_run_ends(self) -> Sequence[Interruption]:
        """Return the maximum runs that end soon, or should have ended; reserved ones do not end.

        The sweep runs every few hours only. Before it, each instance has time to leave.
        """
        if self._settings.max_run_hours is None:
            return []
        run_seconds = self._settings.max_run_hours * 3600.0
        ends = [
            run_end_notice(instance.id, launched, launched + run_seconds)
            for owned in self._register.all()
            if (instance := owned.instance).state in _RUNNING
            and (launched := instance.launched_seconds) is not None
            and not _is_reserved(instance.offer)
        ]
        now_seconds = self._clock.now()
        return [
            replace(
                notice, reclaim_seconds=max(notice.reclaim_seconds, now_seconds + _LEAVE_SECONDS)
            )
            for notice in ends
            if notice.notice_seconds <= now_seconds
        ]

    def condition(self) -> Condition:
        """Return offers left out, errors of lists, prices and queues, and instances at risk."""
        errors = self._shared_troubles
        errors += [
            f"{name}: no reclaim notices: {error}" for name, error in self._queue_errors.items()
        ]
        closed = (name for region in self._offering.values() for name in region.closed)
        errors += [
            f"quotas are unknown, and no limit: {region.unread_quotas}"
            for region in self._offering.values()
            if region.unread_quotas is not None
        ]
        if dropped := sum(region.counts["poison"] for region in self._notices.values()):
            errors.append(
                f"{dropped} unreadable messages were dropped since the start: see the log"
            )
        at_risk = (region.rebalanced for region in self._notices.values())
        strangers = (region.last or Counter() for region in self._strangers.values())
        return Condition(
            self._left_out,
            tuple(errors),
            frozenset().union(*at_risk),
            strangers=sum(strangers, Counter()),
            begins={
                offer_id: begins_seconds
                for region in self._offering.values()
                for offer_id, begins_seconds in region.begins.items()
            },
            silent_scopes=self._stale_scopes,
            notes=small_quotas(closed),
        )

    def spot_scores(self, pool: str) -> SpotScores:
        """Return EC2's spot placement scores of a pool's zones; see `Provider.spot_scores`."""
        return self._offering[self._settings.pools[pool].region].spot_scores(pool)

    @property
    def _left_out(self) -> Mapping[str, str]:
        return {
            offer_id: reason
            for region in self._offering.values()
            for offer_id, reason in region.left_out.items()
        }

    @property
    def _queue_errors(self) -> Mapping[str, str]:
        return {name: error for name, region in self._notices.items() if (error := region.trouble)}

    def _sold(self) -> Sequence[AwsSale]:
        return [sale for region in self._offering.values() for sale in region.sales()]

    def _quotas(self, sales: Sequence[AwsSale]) -> Sequence[Limit]:
        return [limit for region in self._offering.values() for limit in region.limits(sales)]

    def _send(
        self, request: LaunchRequest, sale: AwsSale, alternatives: Sequence[AwsSale]
    ) -> CloudInstance:
        sales = (sale, *alternatives)
        return self._launching.launch(request, sales, self._patience.visible_seconds)

    def _rehearse(self, sale: AwsSale) -> bool:
        self._launching.rehearse(sale)
        return True

    def _console(self, owned: Owned) -> str:
        calls, name = self._calls[owned.scope], owned.instance.id
        try:
            reply = calls.describe("GetConsoleOutput", InstanceId=name, Latest=True)
        except NotFound:  # "UnsupportedOperation": types before Nitro have the boot's output only
            reply = calls.describe("GetConsoleOutput", InstanceId=name)
        return str(reply.get("Output") or "")

    def _end(self, instance_ids: Sequence[str]) -> None:
        self._ending.end(instance_ids)

    def _ask(self) -> dict[str, Answer]:
        return dict(zip(self._calls, map_concurrently(self._answer, self._calls), strict=True))

    def _answer(self, region: str) -> Answer:
        try:
            instances = self._listed(region, [])
        except ProviderError as error:
            return error
        with suppress(ProviderError):  # nothing depends on strangers; the count stays
            self._strangers[region].get()
        return instances

    def _count_strangers(self, region: str) -> Counter[str]:
        """Count the deployment's instances that have another controller, by its tag."""
        deployment = {"Name": f"tag:{DEPLOYMENT_TAG}", "Values": [self._settings.deployment]}
        staying = {"Name": "instance-state-name", "Values": list(_STAYING)}
        instances = self._search(region, [deployment, staying])
        owners = (instance.tags.get(CONTROLLER_TAG, "") for instance in instances)
        return Counter(owner for owner in owners if owner != self._controller)

    def _listed(self, region: str, filters: Sequence[Mapping[str, object]]) -> list[CloudInstance]:
        """List this controller's instances in a region."""
        own_tag = {"Name": f"tag:{CONTROLLER_TAG}", "Values": [self._controller]}
        return self._search(region, [own_tag, *filters])

    def _search(self, region: str, filters: Sequence[Mapping[str, object]]) -> list[CloudInstance]:
        """List the instances in a region that pass the filters; the only search for instances."""
        pages = self._calls[region].pages("DescribeInstances", Filters=filters)
        instances = []
        for page in pages:
            with readable(f"{region}: DescribeInstances"):
                instances += [told_instance(description) for description in instances_in(page)]
        return instances

    def _find(self, region: str, instance_ids: Sequence[str]) -> list[Owned]:
        owned = []
        for start in range(0, len(instance_ids), _MAX_FILTER_IDS):
            batch = list(instance_ids[start : start + _MAX_FILTER_IDS])
            id_filter = {"Name": "instance-id", "Values": batch}
            owned += [Owned(instance, region) for instance in self._listed(region, [id_filter])]
        return owned

    def _find_token(self, region: str, token: str) -> CloudInstance | None:
        token_filter = {"Name": f"tag:{TOKEN_TAG}", "Values": [token]}
        return next(iter(self._listed(region, [token_filter])), None)


def _is_reserved(offer_id: str) -> bool:
    """Return whether an offer is reserved capacity, by its id: its pool may have been removed."""
    parts = parts_of(offer_id)
    return parts is not None and parts.purchase == Purchase.RESERVED
