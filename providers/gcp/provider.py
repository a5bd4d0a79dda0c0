"""Compute Engine as a provider: what one deployment buys in the regions of its settings.

The project is asked as a whole, never for one job: its instances in pages of all zones, its
announcements from one subscription a region. Launches go through `launching`, ends through
`ending`; what is remembered in between is in `register`, and what Compute Engine forgets in
`records`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import PermissionDenied, ProviderError, Unavailable
from autoscaler.domain.instance import (
    CloudInstance,
    CloudState,
    Interruption,
    LaunchRequest,
)
from autoscaler.domain.offer import Limit
from autoscaler.market.price_table import PriceTable
from providers.base import Condition
from providers.cloud.known_prices import KnownPrices
from providers.cloud.provider import Answer, CloudProvider
from providers.cloud.replies import readable
from providers.gcp.calls import ProjectCalls, call_budget
from providers.gcp.ending import Ending
from providers.gcp.errors import is_gone
from providers.gcp.history import Past, past_of
from providers.gcp.identity import TokenVerifier
from providers.gcp.launching import Launching
from providers.gcp.listing import Listing
from providers.gcp.notices import Notices
from providers.gcp.offering import Offering
from providers.gcp.records import Records
from providers.gcp.replies import place_of, told_instance
from providers.gcp.session import Session
from providers.gcp.settings import GcpSale, GcpSettings, Patience, PoolForm

_log = logging.getLogger(__name__)

# So many that a list leaves out are looked for at once; the others count as last seen meanwhile.
_MOST_LOOKED_FOR: Final = 50


class GcpProvider(CloudProvider[PoolForm]):
    """Sells the instances of `settings` to the deployment whose controller is `controller`.

    `session` has the credentials, `records` are that controller's, `table` is the owner's price
    list, if there is one. Safe to share between threads.
    """

    def __init__(
        self,
        settings: GcpSettings,
        controller: str,
        clock: Clock,
        session: Session,
        records: Records,
        *,
        patience: Patience = Patience(),
        table: PriceTable | None = None,
        prices: KnownPrices | None = None,
    ) -> None:
        budget, visible_seconds = call_budget(clock), patience.visible_seconds
        super().__init__(
            "gcp", settings.project, settings, controller, budget, visible_seconds, clock, prices
        )
        self._settings = settings
        self._patience = patience
        self._records = records
        self._calls = ProjectCalls(settings.project, patience, session, budget)
        self._offering = Offering(settings, self._calls, patience, table, clock)
        self._ending = Ending(
            settings, controller, self._calls, self._register, visible_seconds, clock
        )
        self._launching = Launching(settings, self._calls, self._register, patience, clock)
        self._notices = Notices(
            settings, self._calls, self._register, self._ending, records, patience, clock
        )
        self._identity = TokenVerifier(settings, session, patience, clock)
        self._listing = Listing(settings, controller, self._calls)
        self._listed: set[str] = set()
        self._recall()

    @property
    def identity(self) -> TokenVerifier:
        """What checks the identity tokens of instances."""
        return self._identity

    def interruptions(self) -> Sequence[Interruption]:
        """Announced reclaims and maintenances of instances that have not ended.

        They are hints: a subscription that can't be read is told, and hides nothing else.

        Raises:
            ProviderError: it is not known which instances there are.
        """
        self._ensure_listed()
        return self._notices.interruptions()

    def condition(self) -> Condition:
        """Offers without a price, what is not listed or heard, and what can't be deleted."""
        deaf = self._notices.deaf
        troubles = self._silences
        troubles += [f"{name}: no announcements: {why}" for name, why in deaf.items()]
        for name in sorted(self._offering.closed):
            troubles.append(f"{name}: the quota is too small for one: ask for more of it")
        if self._offering.unpriced is not None:
            troubles.append(f"prices may be old: {self._offering.unpriced}")
        if self._ending.trouble is not None:
            troubles.append(self._ending.trouble)
        if dropped := self._notices.counts["poison"]:
            troubles.append(f"{dropped} messages could not be read since the start: see the log")
        return Condition(self._offering.left_out, tuple(troubles))

    @property
    def _left_out(self) -> Mapping[str, str]:
        return self._offering.left_out

    def _sold(self) -> Sequence[GcpSale]:
        return self._offering.sales()

    def _quotas(self, sales: Sequence[GcpSale]) -> Sequence[Limit]:
        return self._offering.limits(sales)

    def _send(self, request: LaunchRequest, sale: GcpSale) -> CloudInstance:
        return self._launching.launch(request, sale)

    def _end(self, instance_ids: Sequence[str]) -> None:
        self._ending.end(instance_ids)

    def _recall(self) -> None:
        """What the last controller has known; a list says what of it there still is."""
        for instance in self._records.instances():
            self._register.add(place_of(instance.id)[0], instance, self._clock.now())

    def _ask(self) -> dict[str, Answer]:
        asked_seconds = self._clock.now()
        answers = self._listing.answers(self._register.scopes())
        silent = {
            zone: answer for zone, answer in answers.items() if isinstance(answer, ProviderError)
        }
        seen = [one for told in answers.values() if isinstance(told, list) for one in told]
        found = {one.instance.id: one.instance for one in seen}
        self._listed |= found.keys()
        found |= self._missing(found, silent, asked_seconds)
        self._ending.sweep(one.instance for one in seen if one.is_at_rest)
        by_zone: dict[str, list[CloudInstance]] = {zone: [] for zone in answers}
        for one in found.values():
            by_zone[place_of(one.id)[0]].append(one)
        return {**by_zone, **silent}

    def _list(self) -> None:
        super()._list()
        owned = [one.instance for one in self._register.all()]
        self._listed &= {one.id for one in owned}
        self._ending.forget(one.id for one in owned if one.state is CloudState.TERMINATED)
        self._records.keep_instances(owned)

    def _missing(
        self, found: Mapping[str, CloudInstance], silent: Collection[str], asked_seconds: float
    ) -> dict[str, CloudInstance]:
        """What was there and is not in the list: Compute Engine lists what has ended no more."""
        missing = [
            one.instance
            for one in self._register.all()
            if not one.has_ended and one.scope not in silent and one.instance.id not in found
        ]
        due = [one for one in missing if self._is_due(one, asked_seconds)]
        looked_for = {one.id: self._looked_for(one) for one in due[:_MOST_LOOKED_FOR]}
        return looked_for | {one.id: one for one in due[_MOST_LOOKED_FOR:]}

    def _is_due(self, instance: CloudInstance, asked_seconds: float) -> bool:
        """What is new may not be listed yet."""
        age_seconds = self._register.age_seconds(instance, asked_seconds)
        return instance.id in self._listed or age_seconds >= self._patience.visible_seconds

    def _looked_for(self, instance: CloudInstance) -> CloudInstance:
        """As it is by its name; ended if there is none of that name, as before if nobody says."""
        zone, name = place_of(instance.id)
        try:
            told = self._calls.instance(zone, name)
            with readable(f"{zone}: instances.get"):
                return told_instance(told, zone).instance
        except ProviderError as error:
            if not is_gone(error.__cause__):
                _log.info("%s is not in the list, and can't be asked about: %s", name, error)
                return instance
        try:
            past = past_of(self._calls, instance.id)
        except ProviderError as error:
            _log.info("%s has ended, and it is not known when: %s", instance.id, error)
            if instance.launched_seconds is None and not isinstance(error, PermissionDenied):
                return instance  # what it ran for, if it did, must not be lost
            past = Past()
        return self._ended(instance, past)

    def _ended(self, instance: CloudInstance, past: Past) -> CloudInstance:
        """With its end, as its operations say; now where they don't."""
        now_seconds = self._clock.now()
        launched_seconds = instance.launched_seconds
        if launched_seconds is None:  # it may have left its queue while nobody looked
            launched_seconds = past.launched_seconds
        if past.refusal is not None:
            _log.warning("%s never came to be: %s", instance.id, past.refusal)
            if _was_refused_late(instance, past):
                return replace(
                    instance,
                    state=CloudState.TERMINATED,
                    launched_seconds=None,
                    ended_seconds=now_seconds,
                    refusal=past.refusal,
                )
        ends = [now_seconds]
        if past.ended_seconds is not None:
            ends.append(past.ended_seconds)
        if past.taken_seconds is not None:
            ends.append(past.taken_seconds + self._patience.notice_seconds)
        return replace(
            instance,
            state=CloudState.TERMINATED,
            launched_seconds=launched_seconds,
            ended_seconds=max(min(ends), launched_seconds or 0.0),
        )


def _was_refused_late(instance: CloudInstance, past: Past) -> bool:
    """Return whether an instance that counts as launched was refused its capacity after all.

    An error without a rule, such as that of an insert which a deletion has cancelled, is no proof.
    """
    is_launched = instance.launched_seconds is not None
    is_sure = past.launched_seconds is None and not isinstance(past.refusal, Unavailable)
    return is_launched and not instance.is_decided and is_sure
