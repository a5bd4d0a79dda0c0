"""Comparison of the providers' listings with the store, and updates of the store.

Providers are asked before the store is read, so that an instance launched in between is known to
the store and is not taken for an orphan. A listing says nothing about an instance that was ordered
after the listing began. A listing that failed has no consequences.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from autoscaler.clock import is_waiting
from autoscaler.controller.clock_jumps import JUMP_SECONDS, LoopTime
from autoscaler.controller.observe.orphans import Orphans
from autoscaler.controller.offers.false_starts import give_up
from autoscaler.controller.offers.market import Listing, Market
from autoscaler.controller.offers.refusals import (
    record_acceptance,
    record_refusal,
    refusal_by,
)
from autoscaler.controller.offers.zones import record_launched
from autoscaler.controller.settings import ControllerSettings
from autoscaler.controller.workers import CallKind, CallWorkers
from autoscaler.domain.errors import CastorError, Conflict, UnknownInstance
from autoscaler.domain.facts import Fact
from autoscaler.domain.heartbeats import silence_seconds
from autoscaler.domain.instance import (
    INSTANCE_TAG,
    CloudInstance,
    CloudState,
    Desired,
    HeldInstance,
    InstancePhase,
    Interruption,
)
from autoscaler.domain.intent import IntentKind, IntentState
from autoscaler.domain.offer import Purchase
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

_MOST_CHARACTERS: Final = 65_536

_TERMINATE_AGAIN_SECONDS = 60.0
# No listing takes longer. An instance ordered still later was ordered before a clock was set back.
_LONGEST_LISTING_SECONDS: Final = 3600.0
# A longer gap between ticks means that the controller was down or the machine suspended.
_LONGEST_TICK_GAP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Observed:
    """All instances that have not ended, and the present errors of providers.

    `strays` are the cloud ids of orphans, which no job ordered. Orphans are terminated after they
    appear in a second listing.
    """

    alive: tuple[HeldInstance, ...]
    strays: frozenset[str] = frozenset()


class Observer:
    """Synchronisation of the store with the providers' listings."""

    def __init__(
        self,
        store: Store,
        market: Market,
        workers: CallWorkers,
        settings: ControllerSettings,
        time: LoopTime,
    ) -> None:
        self._store = store
        self._market = market
        self._settings = settings
        self._time = time
        self._observed_seconds = float("-inf")
        self._listening_seconds = float("-inf")
        self._settled: set[str] = set()
        self.consoles = Consoles(market, workers)
        self._orphans = Orphans(store, market, workers, settings.orphan_seconds, time)
        self._missing: dict[str, float] = {}
        self._refused: frozenset[str] = frozenset()
        self.on_capacity: Callable[[HeldInstance], None] = lambda held: None

    def observe(self, now_seconds: float, has_jumped: bool = False) -> Observed:
        """Ask the providers if that is due, and apply their complete answers to the store.

        If the wall clock `has_jumped`, nothing follows from silence or from missing instances.
        """
        moment_seconds = self._time.monotonic()
        gap_seconds = moment_seconds - self._observed_seconds
        if has_jumped or gap_seconds > _LONGEST_TICK_GAP_SECONDS:
            self._listening_seconds = now_seconds
        self._observed_seconds = moment_seconds
        listing = self._market.refresh(now_seconds)
        if listing is not None:
            self._record_refused_prices(now_seconds)
            self._follow_prices(now_seconds)
            self._apply_listing(listing, now_seconds, has_jumped)
        alive = self._store.instances.alive()
        longest_seconds = silence_seconds(len(alive), self._settings.silence_seconds)
        for held in alive:
            self._check_agent(held, longest_seconds, now_seconds)
        alive = self._store.instances.alive()
        return Observed(alive, self._orphans.cloud_ids)

    def _follow_prices(self, now_seconds: float) -> None:
        """Reprice held spot instances at the present market price, as the clouds bill them."""
        offers = {offer.id: offer for offer in self._market.offers}
        for held in self._store.instances.alive():
            offer = offers.get(held.offer)
            if offer is None or offer.purchase is not Purchase.SPOT:
                continue
            if (held.usd_per_hour, held.extras_usd_per_hour) != (
                offer.usd_per_hour,
                offer.extras_usd_per_hour,
            ):
                self._store.instances.reprice(held.id, offer, now_seconds)

    def _record_refused_prices(self, now_seconds: float) -> None:
        """Record an event for each offer newly left out, once until the offer is usable again."""
        refused = self._market.refused
        for offer in sorted(refused.keys() - self._refused):
            text = f"{offer} is left out: {refused[offer]}"
            self._record_event(now_seconds, "price refused", text, None)
        self._refused = frozenset(refused)

    def _apply_listing(self, listing: Listing, now_seconds: float, has_jumped: bool) -> None:
        alive = {held.id: held for held in self._store.instances.alive()}
        listed = {instance.id for instance in listing.instances}
        self._settled &= listed | listing.listed_elsewhere
        for instance in listing.instances:
            self._isolated(partial(self._apply_instance, instance, alive, now_seconds))
        for notice in listing.interruptions:
            self._isolated(partial(self._reclaim, notice, alive, now_seconds))
        if not has_jumped:
            self._end_vanished(listing, alive, now_seconds)
            self._drop_unwanted_launches(listing, alive, now_seconds)

    def _apply_instance(
        self, listed: CloudInstance, alive: dict[str, HeldInstance], now_seconds: float
    ) -> None:
        held = alive.get(listed.tags.get(INSTANCE_TAG, ""))
        if held is None or held.cloud_id not in (None, listed.id):
            self._apply_ended(listed, now_seconds)
        elif _has_changed(held, listed):
            if held.phase is InstancePhase.QUEUED and listed.launched_seconds is not None:
                self.on_capacity(held)
            error = listed.refusal
            refuse = None if error is None else refusal_by(error, held.offer, now_seconds)
            after = self._store.instances.observe_cloud(held.id, listed, now_seconds, refuse)
            record_launched(self._store, held, after, now_seconds)
            if listed.state is CloudState.TERMINATED:
                self._settled.add(listed.id)
            if error is not None:
                record_refusal(self._store, self._market.offers, held, error, now_seconds)
            elif after.phase is InstancePhase.ENDED and held.desired is Desired.PRESENT:
                self._record_lost(after, now_seconds)
        else:
            if listed.is_decided and held.is_undecided:
                self._store.instances.note(held.id, {Fact.UNDECIDED: ""})
                record_acceptance(self._store, held.offer, now_seconds)
            if held.desired is Desired.ABSENT:
                self._terminate_again(held, now_seconds)

    def _record_lost(self, held: HeldInstance, now_seconds: float) -> None:
        if held.launched_seconds is not None:
            self._record_event(now_seconds, "instance lost", f"{held.id} has ended", held.job)
            self.consoles.fetch(held)
            return
        waited_seconds = (held.ended_seconds or now_seconds) - held.requested_seconds
        text = f"{held.id}: {held.offer} had no capacity for it in {waited_seconds:.0f} s"
        self._record_event(now_seconds, "order unfilled", text, held.job)

    def _apply_ended(self, listed: CloudInstance, now_seconds: float) -> None:
        """Apply the listing of an instance that has ended in the store, or of an orphan."""
        is_over = listed.state is CloudState.TERMINATED
        if is_over and listed.id in self._settled:
            return
        try:
            # A launch given up before the listing: its instance is billed and terminated.
            instance = listed.tags[INSTANCE_TAG]
            held = self._store.instances.observe_cloud(instance, listed, now_seconds)
        except (KeyError, UnknownInstance, Conflict):
            self._orphans.handle(listed, now_seconds)
        else:
            if not is_over:
                self._settled.discard(listed.id)
                self._resume_billing(held, now_seconds)
        if is_over:
            self._settled.add(listed.id)

    def _resume_billing(self, held: HeldInstance, now_seconds: float) -> None:
        """Bill and terminate an instance that has ended in the store but not in its cloud."""
        if self._store.instances.bill_again(held.id, now_seconds):
            text = (
                f"{held.id}: its cloud lists it again; billing resumes and it is terminated again"
            )
            self._record_event(now_seconds, "instance found again", text, held.job)
        self._terminate_again(held, now_seconds)

    def _terminate_again(self, held: HeldInstance, now_seconds: float) -> None:
        """Repeat the termination of an instance that still runs."""
        for intent in self._store.intents.of_instance(held.id):
            is_terminated = (
                intent.kind is IntentKind.TERMINATE and intent.state is IntentState.DONE
            )
            patience_seconds = _TERMINATE_AGAIN_SECONDS * (intent.attempts + 1)
            steady_seconds = self._time.steady.now_since(
                f"intent {intent.id}", intent.not_before_seconds, now_seconds
            )
            waited_seconds = steady_seconds - intent.not_before_seconds
            if is_terminated and waited_seconds > patience_seconds:
                self._store.intents.failed(intent.id, "it still runs", now_seconds)

    def _reclaim(
        self, notice: Interruption, alive: dict[str, HeldInstance], now_seconds: float
    ) -> None:
        for held in alive.values():
            if held.cloud_id == notice.instance and held.reclaim_seconds is None:
                self._store.instances.take_back(held.id, notice.reclaim_seconds, now_seconds)
                left_seconds = notice.reclaim_seconds - now_seconds
                text = f"{held.id} is taken back in {max(left_seconds, 0):.0f} s"
                self._record_event(now_seconds, "reclaim", text, held.job)

    def _end_vanished(
        self, listing: Listing, alive: dict[str, HeldInstance], now_seconds: float
    ) -> None:
        """End instances that complete listings have not shown for `vanished_seconds`.

        Clouds remove ended instances from their listings after some time. A listing of other
        providers says nothing about an instance.
        """
        listed = {instance.id for instance in listing.instances} | listing.listed_elsewhere
        covered, moment_seconds = self._covered(listing, alive), self._time.monotonic()
        self._missing = {name: first for name, first in self._missing.items() if name in alive}
        for held in alive.values():
            if held.cloud_id is None or held.cloud_id in listed:
                self._missing.pop(held.id, None)
                continue
            if held.id not in covered:
                continue
            first_seconds = self._missing.setdefault(held.id, moment_seconds)
            if moment_seconds - first_seconds >= self._settings.vanished_seconds:
                self._end_unlisted(held, now_seconds)

    def _covered(self, listing: Listing, alive: Mapping[str, HeldInstance]) -> Mapping[str, float]:
        """Return the instances that a listing covers, with the time at which the listing began.

        An instance that was ordered later is not covered. The provider of an instance whose offer
        is no longer sold is unknown: all providers have to answer.
        """
        providers = {offer.id: offer.provider for offer in self._market.offers}
        listed_seconds = listing.listed_seconds
        is_complete = bool(listing.answered) and self._market.names <= listed_seconds.keys()
        covered = {}
        for held in alive.values():
            provider = providers.get(held.offer)
            if provider in listing.answered:
                began_seconds = listed_seconds[provider]
            elif is_complete and provider is None:
                began_seconds = min(listed_seconds.values())
            else:
                continue
            if not is_waiting(held.requested_seconds, began_seconds, _LONGEST_LISTING_SECONDS):
                covered[held.id] = began_seconds
        return covered

    def _drop_unwanted_launches(
        self, listing: Listing, alive: dict[str, HeldInstance], now_seconds: float
    ) -> None:
        """Give up unwanted launches of unknown outcome that complete listings do not show.

        They are not sent again, because that might launch an unwanted instance. An instance listed
        later is billed and terminated.
        """
        listed = {instance.tags.get(INSTANCE_TAG) for instance in listing.instances}
        covered = self._covered(listing, alive)
        for held in alive.values():
            is_waiting = held.cloud_id is None and held.desired is Desired.ABSENT
            if not is_waiting or held.id in listed or held.id not in covered:
                continue
            for intent in self._store.intents.of_instance(held.id):
                is_launch = intent.kind is IntentKind.LAUNCH
                called_seconds = intent.sent_seconds or held.requested_seconds
                listed_seconds = self._time.steady.now_since(
                    f"intent {intent.id}", called_seconds, covered[held.id]
                )
                unknown_seconds = listed_seconds - called_seconds
                is_late = unknown_seconds >= self._settings.unknown_launch_seconds
                if is_launch and intent.state is IntentState.PENDING and is_late:
                    text = f"{held.id}: not wanted, and no listing of its cloud shows it"
                    self._store.instances.launch_failed(held.id, text, now_seconds)
                    self._record_event(now_seconds, "launch dropped", text, held.job)

    def _end_unlisted(self, held: HeldInstance, now_seconds: float) -> None:
        assert held.cloud_id is not None, "it was listed before"
        ended = CloudInstance(
            id=held.cloud_id,
            token="",
            offer=held.offer,
            state=CloudState.TERMINATED,
            tags={},
            launched_seconds=held.launched_seconds,
            ended_seconds=held.seen_seconds or held.launched_seconds or now_seconds,
        )
        self._store.instances.observe_cloud(held.id, ended, now_seconds)
        is_billed = held.launched_seconds is not None
        bill = (
            "billed until its last heartbeat" if is_billed else "it was queued and is not billed"
        )
        text = f"{held.id}: its cloud no longer lists it; {bill}"
        self._record_event(now_seconds, "instance lost", text, held.job)

    def _check_agent(self, held: HeldInstance, longest_seconds: float, now_seconds: float) -> None:
        """Give up an instance whose agent never joined, or is silent for `longest_seconds`."""
        if held.desired is Desired.ABSENT or held.launched_seconds is None:
            return
        # Time in which the controller did not listen does not count as silence. A time in the
        # future was stored before the clock was set back.
        heard_seconds = held.seen_seconds or held.launched_seconds
        if heard_seconds > now_seconds + JUMP_SECONDS:
            heard_seconds = self._listening_seconds
        silent_seconds = now_seconds - max(heard_seconds, self._listening_seconds)
        if held.seen_seconds is None:
            join_seconds = held.join_seconds or self._settings.join_seconds
            overdue = silent_seconds > join_seconds
            cause = (
                f"its agent never joined within {join_seconds / 60:.0f} min: look at its "
                "console, or raise boot_minutes of its pool"
            )
        else:
            overdue = silent_seconds > longest_seconds
            cause = f"no heartbeat of its agent for {longest_seconds:.0f} s"
        if overdue:
            self.consoles.fetch(held)
            give_up(self._store, held, cause, now_seconds)

    def _record_event(self, now_seconds: float, kind: str, text: str, job: str | None) -> None:
        _log.info("%s: %s", kind, text, extra={"job": job})
        self._store.events.add(Event(now_seconds, kind, text, job))

    def _isolated(self, apply: Callable[[], None]) -> None:
        """Call `apply` and log its error, so that one instance's error does not affect others."""
        try:
            apply()
        except CastorError:
            _log.exception("an instance of a listing could not be applied")


def _has_changed(held: HeldInstance, listed: CloudInstance) -> bool:
    """Return whether a listing shows a state of an instance that the store does not have."""
    has_capacity = held.launched_seconds is None and listed.launched_seconds is not None
    return held.cloud_id is None or has_capacity or listed.state is CloudState.TERMINATED


class Consoles:
    """Requests for the console output, which alone tells why an instance did not start.

    `keep` stores the output of an instance. The calls are made in workers, and their errors are
    only logged.
    """

    def __init__(self, market: Market, workers: CallWorkers) -> None:
        self._market = market
        self._workers = workers
        self.keep: Callable[[HeldInstance, str], None] = lambda held, text: None

    def fetch(self, held: HeldInstance) -> None:
        """Store the last output of an instance that the cloud has launched."""
        if held.cloud_id is not None and held.seen_seconds is None:
            provider = self._market.provider_of(held.offer, held.cloud_id) or ""
            workers = self._workers.of(CallKind.CONSOLE, provider)
            workers.submit(partial(self._fetch, held, held.cloud_id))

    def _fetch(self, held: HeldInstance, cloud_id: str) -> None:
        try:
            text = self._market.console(held.offer, cloud_id)
        except CastorError as error:
            fields = {"job": held.job, "instance": held.id}
            _log.warning("the console of %s can't be read: %s", held.id, error, extra=fields)
            return
        if text:
            self.keep(held, text[-_MOST_CHARACTERS:])
