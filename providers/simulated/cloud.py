"""Events of a simulated cloud as its clock advances.

Each call first applies all events since the last call, in time order. The results therefore do not
depend on how often the cloud is called.
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
"""Seconds for which an ended instance is listed; its token is known forever."""

_ROUNDING_TOLERANCE = 1e-9
"""Factor by which a float sum of prices may exceed a limit."""


class SimulatedCloud:
    """All instances of one cloud, of every deployment. Capacity and limits bound them together."""

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
        self._applied_seconds = clock.now()

    def launch(self, controller: str, request: LaunchRequest) -> CloudInstance:
        """Launch one instance, or return the instance of this token, which may have ended.

        Raises:
            NotFound: no such offer exists.
            InsufficientCapacity: the trace, or a limit on devices or instances, leaves no room.
            QuotaExceeded: a limit in US dollars per hour leaves no room.
        """
        with self._up_to_date() as now_seconds:
            instance = self._by_token.get((controller, request.token))
            if instance is None:
                instance = self._add(controller, request, now_seconds)
            return instance.described(now_seconds)

    def terminate(self, controller: str, instance_ids: Sequence[str]) -> None:
        """End the given instances of `controller` at once."""
        with self._up_to_date() as now_seconds:
            for instance_id in instance_ids:
                instance = self._alive.get(instance_id)
                if instance is not None and instance.controller == controller:
                    instance.end_seconds = now_seconds
            self._settle_ended(now_seconds)
            for offer_id in self.settings.capacity:
                self._launch_queued(offer_id, now_seconds)

    def reclaim(self, controller: str, instance_id: str) -> None:
        """Give notice to an instance now; it ends after the notice period.

        Raises:
            NotFound: `controller` has no such running instance.
        """
        with self._up_to_date() as now_seconds:
            instance = self._alive.get(instance_id)
            if instance is None or instance.controller != controller:
                raise NotFound(f"{instance_id}: the deployment has no running instance of this id")
            instance.reclaim(now_seconds, now_seconds + self.settings.notice_period_seconds)
            self._settle_ended(now_seconds)

    def instances(self, controller: str) -> list[CloudInstance]:
        """Return the instances of `controller`, including those that ended in the last hour."""
        with self._up_to_date() as now_seconds:
            listed = chain(self._ended, self._alive.values())
            return [
                instance.described(now_seconds)
                for instance in listed
                if instance.controller == controller
            ]

    def interruptions(self, controller: str) -> list[Interruption]:
        """Return the reclaim notices of the running instances of `controller`."""
        with self._up_to_date() as now_seconds:
            held = [
                instance for instance in self._alive.values() if instance.controller == controller
            ]
            notices = (instance.interruption(now_seconds) for instance in held)
            return [notice for notice in notices if notice is not None]

    def billed_usd(self, controller: str) -> Decimal:
        """Return the bill of `controller` in US dollars; running instances up to now."""
        with self._up_to_date() as now_seconds:
            held = (
                instance for instance in self._alive.values() if instance.controller == controller
            )
            running_usd = sum((instance.billed_usd(now_seconds) for instance in held), Decimal(0))
            return self._ended_usd[controller] + running_usd

    def next_event_seconds(self) -> float | None:
        """Return the time of the next event without a call; None if there is none."""
        with self._up_to_date() as now_seconds:
            instance_times = (
                seconds
                for instance in self._alive.values()
                for seconds in (
                    instance.running_seconds,
                    instance.notice_seconds,
                    instance.end_seconds,
                )
            )
            times = chain(instance_times, self._capacity_event_times(now_seconds))
            return min(
                (seconds for seconds in times if now_seconds < seconds < math.inf), default=None
            )

    @contextmanager
    def _up_to_date(self) -> Iterator[float]:
        """Hold the lock and yield the current time, after applying all events up to it."""
        with self._lock:
            now_seconds = self._clock.now()
            if now_seconds > self._applied_seconds:
                for offer_id, trace in self.settings.capacity.items():
                    self._reclaim_excess(offer_id, trace, now_seconds)
                    for seconds, _ in trace.changes(self._applied_seconds, now_seconds):
                        self._launch_queued(offer_id, seconds)
                self._settle_ended(now_seconds)
                self._applied_seconds = now_seconds
            yield now_seconds

    def _reclaim_excess(self, offer_id: str, trace: CapacityTrace, now_seconds: float) -> None:
        """Give notice to the youngest spot instances beyond the capacity after each change."""
        held = [instance for instance in self._held(offer_id) if instance.is_spot]
        if not held:
            return
        for seconds, available in trace.changes(self._applied_seconds, now_seconds):
            staying = [instance for instance in held if instance.notice_seconds > seconds]
            for instance in staying[available:]:
                instance.reclaim(seconds, seconds + self.settings.notice_period_seconds)

    def _settle_ended(self, now_seconds: float) -> None:
        """Bill the instances that have ended, and drop those that ended over an hour ago."""
        ended = [
            instance for instance in self._alive.values() if instance.end_seconds <= now_seconds
        ]
        for instance in sorted(ended, key=lambda instance: instance.end_seconds):
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
            known_ids = ", ".join(self._offers)
            raise NotFound(f"offer {request.offer}: not sold here; there are {known_ids}")
        self._check_limits(offer)
        has_queue = offer.purchase is Purchase.FLEX_START
        is_queued = has_queue and self._free(offer.id, now_seconds) <= 0
        if not is_queued:
            self._claim_capacity(offer, now_seconds)
        ordinal = self._launches[offer.id]
        instance = SimulatedInstance(
            id=f"{offer.provider}-{offer.id}-{ordinal}",
            controller=controller,
            request=replace(request, tags=dict(request.tags)),
            offer=offer,
        )
        if not is_queued:
            self._launch(instance, now_seconds)
        self._launches[offer.id] += 1
        self._by_token[controller, request.token] = instance
        self._alive[instance.id] = instance
        return instance

    def _launch(self, instance: SimulatedInstance, seconds: float) -> None:
        ordinal = int(instance.id.rpartition("-")[2])
        lifetime_seconds = self.settings.lifetime_seconds(instance.offer, ordinal)
        instance.launch(seconds, lifetime_seconds, self.settings.notice_period_seconds)

    def _launch_queued(self, offer_id: str, seconds: float) -> None:
        """Launch queued instances into the free capacity, in order of arrival."""
        queued = [instance for instance in self._alive.values() if instance.offer.id == offer_id]
        queued = [instance for instance in queued if instance.launched_seconds is None]
        for instance in queued[: max(self._free(offer_id, seconds), 0) if queued else 0]:
            self._launch(instance, seconds)

    def _free(self, offer_id: str, seconds: float) -> int:
        """Return the number of instances for which the trace has room; 1 without a trace."""
        trace = self.settings.capacity.get(offer_id)
        return 1 if trace is None else trace.available(seconds) - len(self._held(offer_id))

    def _check_limits(self, offer: Offer) -> None:
        """Check the limits for one more instance of an offer.

        Raises:
            InsufficientCapacity: a limit on devices or instances, which exist in limited number,
                leaves no room.
            QuotaExceeded: a limit in US dollars per hour, which is an account's quota, leaves no
                room.
        """
        for limit in self.settings.limits:
            share = limit.use(offer)
            used = sum(limit.use(instance.offer) for instance in self._alive.values())
            if share == 0 or used + share <= limit.maximum * (1 + _ROUNDING_TOLERANCE):
                continue
            message = (
                f"{offer.id} takes {share:g} of limit {limit.name}, {used:g} of {limit.maximum:g} "
                "are in use: end an instance or raise the limit"
            )
            if limit.unit is LimitUnit.USD_PER_HOUR:
                raise QuotaExceeded(message)
            raise InsufficientCapacity(message)

    def _claim_capacity(self, offer: Offer, now_seconds: float) -> None:
        """Check that the trace has room. An instance under notice takes room until its end.

        Raises:
            InsufficientCapacity: the trace has no room.
        """
        trace = self.settings.capacity.get(offer.id)
        if trace is None:
            return
        if self._free(offer.id, now_seconds) > 0:
            self._refused.discard(offer.id)
            return
        self._refused.add(offer.id)
        raise InsufficientCapacity(
            f"{offer.id}: all {trace.available(now_seconds)} instances that exist now are held: "
            "choose another offer or try again later"
        )

    def _held(self, offer_id: str) -> list[SimulatedInstance]:
        """Return the launched instances of an offer, the oldest first, without queued ones."""
        offer_instances = [
            instance for instance in self._alive.values() if instance.offer.id == offer_id
        ]
        return [instance for instance in offer_instances if instance.launched_seconds is not None]

    def _capacity_event_times(self, now_seconds: float) -> Iterator[float]:
        """Yield when each trace next reclaims, or has room again for refused or queued requests.

        An instance may end before; that is another event, after which the times are computed
        again.
        """
        queued_offers = {
            instance.offer.id
            for instance in self._alive.values()
            if instance.launched_seconds is None
        }
        for offer_id, trace in self.settings.capacity.items():
            held = self._held(offer_id)
            staying = sum(
                instance.is_spot and instance.notice_seconds > now_seconds for instance in held
            )
            is_wanted = offer_id in self._refused or offer_id in queued_offers
            is_waiting = is_wanted and trace.available(now_seconds) <= len(held)
            if not staying and not is_waiting:
                continue
            for seconds, available in trace.changes(
                now_seconds, now_seconds + trace.period_seconds
            ):
                if available < staying or (is_waiting and available > len(held)):
                    yield seconds
                    break
