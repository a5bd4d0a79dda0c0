"""Provider for Compute Engine: the instances of one deployment in the regions of its settings.

Each call concerns the whole project, never one job: instances are listed in pages of all zones,
and notices are read from one subscription in each region. `launching` launches and `ending` ends
instances. `register` keeps them in between, and `records` keeps what Compute Engine drops.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import ProviderError, Unavailable
from autoscaler.domain.instance import (
    CONTROLLER_TAG,
    CloudInstance,
    CloudState,
    Interruption,
    LaunchRequest,
)
from autoscaler.domain.offer import Limit
from autoscaler.market.price_table import PriceTable
from providers.base import Condition
from providers.cloud.known_prices import KnownPrices
from providers.cloud.provider import Answer, CloudProvider, small_quotas
from providers.cloud.register import Owned
from providers.cloud.replies import readable
from providers.gcp.calls import ProjectCalls, call_budget
from providers.gcp.ending import DeleteCalls
from providers.gcp.errors import is_gone
from providers.gcp.history import GoneInstances, Past
from providers.gcp.identity import TokenVerifier
from providers.gcp.launching import Launching
from providers.gcp.listing import InstanceLists
from providers.gcp.notices import Notices
from providers.gcp.offering import Offering
from providers.gcp.records import Records
from providers.gcp.replies import place_of, told_instance
from providers.gcp.session import Session
from providers.gcp.settings import CallTimeouts, GcpSale, GcpSettings, PoolForm

_log = logging.getLogger(__name__)

# Unlisted instances looked up after one list; the others count as last seen meanwhile.
_MAX_LOOKUPS: Final = 50


class GcpProvider(CloudProvider[PoolForm]):
    """Provider of Compute Engine instances for the deployment of `controller`.

    `session` has the credentials. `records` are the controller's own. `table` is the owner's price
    list, or None. Thread-safe.
    """

    def __init__(
        self,
        settings: GcpSettings,
        controller: str,
        clock: Clock,
        session: Session,
        records: Records,
        *,
        patience: CallTimeouts = CallTimeouts(),
        table: PriceTable | None = None,
        prices: KnownPrices | None = None,
    ) -> None:
        budget, visible_seconds = call_budget(clock), patience.visible_seconds
        super().__init__(
            "gcp", settings.project, settings, controller, budget, visible_seconds, clock, prices
        )
        self._patience = patience
        self._records = records
        self._calls = ProjectCalls(settings.project, patience, session, budget)
        self._offering = Offering(settings, self._calls, patience, table, self._held, clock)
        self._ending = DeleteCalls(
            settings, controller, self._calls, self._register, visible_seconds, clock
        )
        self._launching = Launching(
            settings, self._calls, self._register, records, patience, clock
        )
        self._notices = Notices(
            settings, self._calls, self._register, self._ending, records, patience, clock
        )
        self._identity = TokenVerifier(settings, session, patience, clock)
        self._listing = InstanceLists(settings, controller, self._calls)
        self._listed: set[str] = set()
        self._gone = GoneInstances(self._calls, patience.history_seconds, clock)
        self._recall()

    @property
    def identity(self) -> TokenVerifier:
        """Verifier of instances' identity tokens."""
        return self._identity

    def interruptions(self) -> Sequence[Interruption]:
        """Return announced reclaims and maintenance of instances that have not ended.

        A subscription that can't be read is reported by `condition` and does not affect other
        regions.

        Raises:
            ProviderError: the deployment's instances can't be listed.
        """
        self._ensure_listed()
        return self._notices.interruptions()

    def condition(self) -> Condition:
        """Return offers left out, and errors of lists, subscriptions, prices and deletions."""
        subscription_errors = self._notices.deaf
        errors = self._shared_troubles
        errors += [
            f"{name}: no reclaim notices: {error}" for name, error in subscription_errors.items()
        ]
        if self._offering.unread_quotas is not None:
            errors.append(f"quotas are unknown, and no limit: {self._offering.unread_quotas}")
        if self._offering.unpriced is not None:
            errors.append(f"prices may be old: {self._offering.unpriced}")
        if self._ending.trouble is not None:
            errors.append(self._ending.trouble)
        errors += self._gone.troubles
        if dropped := self._notices.counts["poison"]:
            errors.append(
                f"{dropped} unreadable messages were dropped since the start: see the log"
            )
        return Condition(
            self._offering.left_out,
            tuple(errors),
            strangers=self._listing.strangers,
            silent_scopes=self._stale_scopes,
            notes=small_quotas(self._offering.closed),
        )

    @property
    def _left_out(self) -> Mapping[str, str]:
        return self._offering.left_out

    def _sold(self) -> Sequence[GcpSale]:
        return self._offering.sales()

    def _quotas(self, sales: Sequence[GcpSale]) -> Sequence[Limit]:
        return self._offering.limits(sales)

    def _send(
        self, request: LaunchRequest, sale: GcpSale, alternatives: Sequence[GcpSale]
    ) -> CloudInstance:
        return self._launching.launch(request, sale)

    def _console(self, owned: Owned) -> str:
        return self._calls.serial_output(*place_of(owned.instance.id))

    def _end(self, instance_ids: Sequence[str]) -> None:
        self._ending.end(instance_ids)

    def _recall(self) -> None:
        """Register the instances that the last controller recorded; the next list updates them."""
        for instance in self._records.instances():
            self._register.add(place_of(instance.id)[0], instance, self._clock.now())

    def _ask(self) -> dict[str, Answer]:
        asked_seconds = self._clock.now()
        answers = self._listing.answers(self._register.scopes())
        errors = {
            zone: answer for zone, answer in answers.items() if isinstance(answer, ProviderError)
        }
        listed = [
            seen for answer in answers.values() if isinstance(answer, list) for seen in answer
        ]
        instances = {seen.instance.id: seen.instance for seen in listed}
        self._notices.note_run_ends({seen.instance.id: seen.run_end_seconds for seen in listed})
        self._listed |= instances.keys()
        instances |= self._missing(instances, errors, asked_seconds)
        instances |= self._lost_launches(instances, errors, asked_seconds)
        self._ending.sweep(seen.instance for seen in listed if seen.is_at_rest)
        by_zone: dict[str, list[CloudInstance]] = {zone: [] for zone in answers}
        for instance in instances.values():
            by_zone[place_of(instance.id)[0]].append(instance)
        return {**by_zone, **errors}

    def _list(self) -> None:
        super()._list()
        instances = [owned.instance for owned in self._register.all()]
        self._listed &= {instance.id for instance in instances}
        self._ending.forget(
            instance.id for instance in instances if instance.state is CloudState.TERMINATED
        )
        self._records.keep_instances(lambda: [owned.instance for owned in self._register.all()])

    def _missing(
        self,
        listed: Mapping[str, CloudInstance],
        silent_zones: Collection[str],
        asked_seconds: float,
    ) -> dict[str, CloudInstance]:
        """Return registered instances that the lists leave out, looked up by name.

        Compute Engine drops ended instances from its lists.
        """
        unlisted = [
            owned
            for owned in self._register.all()
            if not owned.has_ended and owned.instance.id not in listed
        ]
        unknown = [launch.id for launch in self._launching.unknown(asked_seconds)]
        self._gone.begin([*unknown, *(owned.instance.id for owned in unlisted)])
        missing = [owned.instance for owned in unlisted if owned.scope not in silent_zones]
        due = [instance for instance in missing if self._should_be_listed(instance, asked_seconds)]
        looked_up = {instance.id: self._looked_up(instance) for instance in due[:_MAX_LOOKUPS]}
        return looked_up | {instance.id: instance for instance in due[_MAX_LOOKUPS:]}

    def _should_be_listed(self, instance: CloudInstance, asked_seconds: float) -> bool:
        """Return whether a list should show the instance: it was listed before or is not new."""
        age_seconds = self._register.age_seconds(instance, asked_seconds)
        return instance.id in self._listed or age_seconds >= self._patience.visible_seconds

    def _lost_launches(
        self,
        listed: Mapping[str, CloudInstance],
        silent_zones: Collection[str],
        asked_seconds: float,
    ) -> dict[str, CloudInstance]:
        """Return the instances of launches without a reply that no list has shown.

        A spot instance that is reclaimed soon after its launch is deleted before a list shows it.
        """
        launched = {}
        for launch in self._launching.unknown(asked_seconds)[:_MAX_LOOKUPS]:
            is_known = launch.id in listed or self._register.find(launch.id) is not None
            if place_of(launch.id)[0] in silent_zones and not is_known:
                continue
            instance = launch if is_known else self._looked_up(launch)
            is_ours = instance.tags.get(CONTROLLER_TAG) == self._controller
            if instance is not launch and is_ours and instance.launched_seconds is not None:
                launched[launch.id] = instance
            if instance is not launch or is_known:
                self._launching.resolve(launch.id)
        return launched

    def _looked_up(self, instance: CloudInstance) -> CloudInstance:
        """Return the instance as found by its name.

        An instance without a match has ended. An instance is returned unchanged if the call fails,
        and while its history is awaited.
        """
        zone, name = place_of(instance.id)
        try:
            description = self._calls.instance(zone, name)
            with readable(f"{zone}: instances.get"):
                existing = told_instance(description, zone).instance
        except ProviderError as error:
            if not is_gone(error.__cause__):
                _log.info("%s is not listed and can't be looked up: %s", name, error)
                return instance
            past = self._gone.past(instance)
            return instance if past is None else self._ended(instance, past)
        self._gone.forget(instance.id)
        return existing

    def _ended(self, instance: CloudInstance, past: Past) -> CloudInstance:
        """Return the instance as ended, at the time in its history, or now."""
        now_seconds = self._clock.now()
        launched_seconds = instance.launched_seconds
        if launched_seconds is None:  # it may have left its queue between two lists
            launched_seconds = past.launched_seconds
        if past.refusal is not None:
            _log.warning("%s was never created: %s", instance.id, past.refusal)
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
    """Return whether an instance that counts as launched was refused its capacity.

    An error without a rule is no proof; a deletion that cancels an insert causes such an error.
    """
    is_launched = instance.launched_seconds is not None
    is_sure = past.launched_seconds is None and not isinstance(past.refusal, Unavailable)
    return is_launched and not instance.is_decided and is_sure
