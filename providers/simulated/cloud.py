"""What happens in a simulated cloud as its clock passes.

Nothing happens between two calls but what was settled before: each call first makes good, in the
order of time, what has happened since the last one. How often the cloud is asked changes nothing.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from threading import Lock

from autoscaler.clock import Clock
from autoscaler.domain.errors import InsufficientCapacity, NotFound, QuotaExceeded
from autoscaler.domain.instance import CloudInstance, Interruption, LaunchRequest
from autoscaler.domain.offer import LimitUnit, Offer, Purchase
from providers.simulated.capacity import CapacityTrace
from providers.simulated.instance import SimulatedInstance
from providers.simulated.settings import SimulatedSettings

ENDED_LISTED_SECONDS = 3600.0
"""So long an ended instance is listed; its token is known for ever."""

_ROUNDING = 1e-9
"""Sums of prices in floats may pass a limit by this factor."""


class SimulatedCloud:
    """All instances of one cloud, whoever owns them. Capacity and limits bound them together."""

    def __init__(self, settings: SimulatedSettings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._lock = Lock()
        self._offers = {offer.id: offer for offer in settings.offers}
        self._launches: Counter[str] = Counter()
        self._by_token: dict[tuple[str, str], SimulatedInstance] = {}
        self._alive: dict[str, SimulatedInstance] = {}
        self._ended: deque[SimulatedInstance] = deque()
        self._ended_usd: defaultdict[str, Decimal] = defaultdict(Decimal)
        self._refused: set[str] = set()
        self._seen_seconds = clock.now()

    def launch(self, controller: str, request: LaunchRequest) -> CloudInstance:
        """Launch one instance, or return the one of this token, which may have ended.

        Raises:
            NotFound: there is no such offer.
            InsufficientCapacity: the trace, or a limit of devices or instances, leaves no room.
            QuotaExceeded: a limit in US dollars an hour leaves none.
        """
        with self._present() as now_seconds:
            instance = self._by_token.get((controller, request.token))
            if instance is None:
                instance = self._add(controller, request, now_seconds)
            return instance.described(now_seconds)

    def terminate(self, controller: str, instance_ids: Sequence[str]) -> None:
        """End those of them that `controller` owns, at once."""
        with self._present() as now_seconds:
            for instance_id in instance_ids:
                instance = self._alive.get(instance_id)
                if instance is not None and instance.controller == controller:
                    instance.end_seconds = now_seconds
            self._close(now_seconds)
            for offer_id in self.settings.capacity:
                self._fill(offer_id, now_seconds)

    def reclaim(self, controller: str, instance_id: str) -> None:
        """Give notice to an instance now, and its end after the notice period.

        Raises:
            NotFound: `controller` holds no such instance.
        """
        with self._present() as now_seconds:
            instance = self._alive.get(instance_id)
            if instance is None or instance.controller != controller:
                raise NotFound(f"{instance_id}: no instance of this name is held")
            instance.reclaim(now_seconds, now_seconds + self.settings.notice_period_seconds)
            self._close(now_seconds)

    def instances(self, controller: str) -> list[CloudInstance]:
        """What `controller` owns, and what of it ended within the hour."""
        with self._present() as now_seconds:
            listed = chain(self._ended, self._alive.values())
            return [one.described(now_seconds) for one in listed if one.controller == controller]

    def interruptions(self, controller: str) -> list[Interruption]:
        """Notices given to what `controller` holds."""
        with self._present() as now_seconds:
            held = [one for one in self._alive.values() if one.controller == controller]
            notices = (one.interruption(now_seconds) for one in held)
            return [notice for notice in notices if notice is not None]

    def billed_usd(self, controller: str) -> Decimal:
        """What `controller` owes; what it holds is billed up to now."""
        with self._present() as now_seconds:
            held = (one for one in self._alive.values() if one.controller == controller)
            running_usd = sum((one.billed_usd(now_seconds) for one in held), Decimal(0))
            return self._ended_usd[controller] + running_usd

    def next_event_seconds(self) -> float | None:
        """When something next changes by itself; None if nothing will."""
        with self._present() as now_seconds:
            own = (
                moment
                for one in self._alive.values()
                for moment in (one.running_seconds, one.notice_seconds, one.end_seconds)
            )
            moments = chain(own, self._capacity_moments(now_seconds))
            return min((one for one in moments if now_seconds < one < math.inf), default=None)

    @contextmanager
    def _present(self) -> Iterator[float]:
        """All that was due up to now has happened, and no other call is under way."""
        with self._lock:
            now_seconds = self._clock.now()
            if now_seconds > self._seen_seconds:
                for offer_id, trace in self.settings.capacity.items():
                    self._reclaim_beyond(offer_id, trace, now_seconds)
                    for seconds, _ in trace.changes(self._seen_seconds, now_seconds):
                        self._fill(offer_id, seconds)
                self._close(now_seconds)
                self._seen_seconds = now_seconds
            yield now_seconds

    def _reclaim_beyond(self, offer_id: str, trace: CapacityTrace, now_seconds: float) -> None:
        """Give notice to the youngest, where a change left fewer than stay."""
        held = [one for one in self._held(offer_id) if one.is_spot]
        if not held:
            return
        for seconds, available in trace.changes(self._seen_seconds, now_seconds):
            staying = [one for one in held if one.notice_seconds > seconds]
            for instance in staying[available:]:
                instance.reclaim(seconds, seconds + self.settings.notice_period_seconds)

    def _close(self, now_seconds: float) -> None:
        """Settle the bills of those that have ended, and forget what ended long ago."""
        ended = [one for one in self._alive.values() if one.end_seconds <= now_seconds]
        for instance in sorted(ended, key=lambda one: one.end_seconds):
            del self._alive[instance.id]
            self._ended.append(instance)
            self._ended_usd[instance.controller] += instance.billed_usd(now_seconds)
        while self._ended and now_seconds - self._ended[0].end_seconds > ENDED_LISTED_SECONDS:
            self._ended.popleft()

    def _add(
        self, controller: str, request: LaunchRequest, now_seconds: float
    ) -> SimulatedInstance:
        offer = self._offers.get(request.offer)
        if offer is None:
            known = ", ".join(self._offers)
            raise NotFound(f"offer {request.offer}: not sold here; there are {known}")
        self._check_limits(offer)
        has_queue = offer.purchase is Purchase.FLEX_START
        waits = has_queue and self._free(offer.id, now_seconds) <= 0
        if not waits:
            self._claim_capacity(offer, now_seconds)
        ordinal = self._launches[offer.id]
        instance = SimulatedInstance(
            id=f"{offer.provider}-{offer.id}-{ordinal}",
            controller=controller,
            request=replace(request, tags=dict(request.tags)),
            offer=offer,
        )
        if not waits:
            self._launch(instance, now_seconds)
        self._launches[offer.id] += 1
        self._by_token[controller, request.token] = instance
        self._alive[instance.id] = instance
        return instance

    def _launch(self, instance: SimulatedInstance, seconds: float) -> None:
        ordinal = int(instance.id.rpartition("-")[2])
        lifetime_seconds = self.settings.lifetime_seconds(instance.offer, ordinal)
        instance.launch(seconds, lifetime_seconds, self.settings.notice_period_seconds)

    def _fill(self, offer_id: str, seconds: float) -> None:
        """Give what is free at that moment to those that wait, the first come first."""
        waiting = [one for one in self._alive.values() if one.offer.id == offer_id]
        waiting = [one for one in waiting if one.launched_seconds is None]
        for instance in waiting[: max(self._free(offer_id, seconds), 0) if waiting else 0]:
            self._launch(instance, seconds)

    def _free(self, offer_id: str, seconds: float) -> int:
        """How many more there may be."""
        trace = self.settings.capacity.get(offer_id)
        return 1 if trace is None else trace.available(seconds) - len(self._held(offer_id))

    def _check_limits(self, offer: Offer) -> None:
        """Devices and instances are what exists, and come free; dollars are an account's quota."""
        for limit in self.settings.limits:
            share = limit.use(offer)
            used = sum(limit.use(one.offer) for one in self._alive.values())
            if share == 0 or used + share <= limit.maximum * (1 + _ROUNDING):
                continue
            message = (
                f"{offer.id} takes {share:g} of limit {limit.name}, {used:g} of {limit.maximum:g} "
                "are taken: end an instance or raise the limit"
            )
            if limit.unit is LimitUnit.USD_PER_HOUR:
                raise QuotaExceeded(message)
            raise InsufficientCapacity(message)

    def _claim_capacity(self, offer: Offer, now_seconds: float) -> None:
        """Those under notice take their place until they are gone."""
        trace = self.settings.capacity.get(offer.id)
        if trace is None:
            return
        if self._free(offer.id, now_seconds) > 0:
            self._refused.discard(offer.id)
            return
        self._refused.add(offer.id)
        raise InsufficientCapacity(
            f"{offer.id}: all of the {trace.available(now_seconds)} that exist now are held: "
            "take another offer or try again later"
        )

    def _held(self, offer_id: str) -> list[SimulatedInstance]:
        """From the oldest to the youngest; those in a queue are none."""
        own = [one for one in self._alive.values() if one.offer.id == offer_id]
        return [one for one in own if one.launched_seconds is not None]

    def _capacity_moments(self, now_seconds: float) -> Iterator[float]:
        """When traces reclaim next, or have room again for what was refused or waits.

        What is held may end before; that is an event of its own, after which this is asked anew.
        """
        queues = {one.offer.id for one in self._alive.values() if one.launched_seconds is None}
        for offer_id, trace in self.settings.capacity.items():
            held = self._held(offer_id)
            staying = sum(one.is_spot and one.notice_seconds > now_seconds for one in held)
            is_wanted = offer_id in self._refused or offer_id in queues
            is_waiting = is_wanted and trace.available(now_seconds) <= len(held)
            if not staying and not is_waiting:
                continue
            for seconds, available in trace.changes(
                now_seconds, now_seconds + trace.period_seconds
            ):
                if available < staying or (is_waiting and available > len(held)):
                    yield seconds
                    break
