"""Ends of instances. Every terminate call of this provider passes `TerminateCalls._terminate`.

That method refuses instances that were neither listed nor launched with this deployment's own tag.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import PermissionDenied, ProviderError, Throttled, Unavailable
from autoscaler.domain.instance import CONTROLLER_TAG
from providers.aws.calls import RegionCalls
from providers.aws.errors import is_gone
from providers.cloud.register import Owned, Register

_log = logging.getLogger(__name__)

_MAX_PER_CALL: Final = 100

Find = Callable[[str, Sequence[str]], Sequence[Owned]]


class TerminateCalls:
    """Sender of terminate calls for instances of `controller`. Concurrent requests share one call.

    `find` looks up unregistered instances in a region. `visible_seconds` is the maximum lag of
    EC2's lists.
    """

    def __init__(
        self,
        controller: str,
        calls: Mapping[str, RegionCalls],
        register: Register,
        find: Find,
        visible_seconds: float,
        clock: Clock,
    ) -> None:
        self._controller = controller
        self._visible_seconds = visible_seconds
        self._clock = clock
        self._calls = calls
        self._register = register
        self._find = find
        self._queues = {region: _Queue() for region in calls}

    def end(self, instance_ids: Sequence[str]) -> None:
        """Request the end of the given instances that this deployment owns and that run.

        Raises:
            ProviderError: some requests may not have been accepted.
        """
        regions = self._owned_by_region(instance_ids)
        tickets = [
            self._queues[region].put(instance)
            for region, owned in regions.items()
            for instance in owned
        ]
        for region in regions:
            self._process_queue(region)
        for ticket in tickets:
            ticket.result()

    def _owned_by_region(self, instance_ids: Sequence[str]) -> dict[str, list[Owned]]:
        owned_by_region: defaultdict[str, list[Owned]] = defaultdict(list)
        unknown = []
        for instance_id in dict.fromkeys(instance_ids):
            registered = self._register.find(instance_id)
            if registered is None:
                unknown.append(instance_id)
            elif not registered.has_ended:
                owned_by_region[registered.scope].append(registered)
        for region in self._calls if unknown else ():
            for registered in self._find(region, unknown):
                if not registered.has_ended:
                    owned_by_region[region].append(registered)
        return owned_by_region

    def _process_queue(self, region: str) -> None:
        """End all queued instances of a region. Requests made during a call join the next call."""
        queue = self._queues[region]
        with queue.busy:
            tickets = queue.take_all()
            try:
                for start in range(0, len(tickets), _MAX_PER_CALL):
                    self._end_together(region, tickets[start : start + _MAX_PER_CALL])
            finally:
                for ticket in tickets:
                    ticket.done.cancel()  # only unanswered tickets, after an unexpected exception

    def _end_together(self, region: str, tickets: Sequence[_Ticket]) -> None:
        try:
            self._terminate(region, [ticket.owned for ticket in tickets])
        except (Throttled, Unavailable) as error:
            for ticket in tickets:
                ticket.done.set_exception(error)
        except ProviderError as error:
            if len(tickets) == 1:
                self._answer_refused(tickets[0], error)
                return
            # EC2 refuses the whole call because of one instance: try each one alone.
            for ticket in tickets:
                self._end_together(region, [ticket])
        else:
            for ticket in tickets:
                ticket.done.set_result(None)

    def _answer_refused(self, ticket: _Ticket, error: ProviderError) -> None:
        """Answer a refused ticket. An instance unknown to EC2 has ended unless it is new.

        EC2 lists ended instances for an hour.
        """
        age_seconds = self._register.age_seconds(ticket.owned.instance, self._clock.now())
        if not is_gone(error.__cause__):
            ticket.done.set_exception(error)
        elif age_seconds < self._visible_seconds:
            reason = "the instance may be too new for EC2 to find it: retry"
            ticket.done.set_exception(Unavailable(f"{error}: {reason}"))
        else:
            ticket.done.set_result(None)

    def _terminate(self, region: str, owned: Sequence[Owned]) -> None:
        for instance in owned:
            if instance.instance.tags.get(CONTROLLER_TAG) != self._controller:
                raise PermissionDenied(
                    f"{instance.instance.id} does not carry this deployment's tag"
                )
        ids = list(dict.fromkeys(instance.instance.id for instance in owned))
        _log.info("%s: ending %s", region, ", ".join(ids))
        self._calls[region].terminate(ids)


@dataclass(frozen=True, slots=True)
class _Ticket:
    owned: Owned
    done: Future[None] = field(default_factory=Future)


class _Queue:
    """Queue of instances to end in one region. The holder of `busy` processes all of it."""

    def __init__(self) -> None:
        self.busy = threading.Lock()
        self._tickets: list[_Ticket] = []
        self._lock = threading.Lock()

    def put(self, owned: Owned) -> Future[None]:
        ticket = _Ticket(owned)
        with self._lock:
            self._tickets.append(ticket)
        return ticket.done

    def take_all(self) -> list[_Ticket]:
        with self._lock:
            taken, self._tickets = self._tickets, []
            return taken
