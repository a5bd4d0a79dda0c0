"""The one way in which this provider ends instances.

Every terminate passes `Ending._terminate`, which refuses what was not seen with, or launched
with, this deployment's own tag.
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

_MOST_AT_ONCE: Final = 100

Find = Callable[[str, Sequence[str]], Sequence[Owned]]


class Ending:
    """Ends instances of `controller`. Calls that come together become one."""

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
        """Tell EC2 to end those that are ours and have not ended.

        Raises:
            ProviderError: some may not have been told.
        """
        regions = self._ours(instance_ids)
        tickets = [
            self._queues[region].put(one) for region, owned in regions.items() for one in owned
        ]
        for region in regions:
            self._work_off(region)
        for ticket in tickets:
            ticket.result()

    def _ours(self, instance_ids: Sequence[str]) -> dict[str, list[Owned]]:
        found: defaultdict[str, list[Owned]] = defaultdict(list)
        unknown = []
        for instance_id in dict.fromkeys(instance_ids):
            known = self._register.find(instance_id)
            if known is None:
                unknown.append(instance_id)
            elif not known.has_ended:
                found[known.scope].append(known)
        for region in self._calls if unknown else ():
            for known in self._find(region, unknown):
                if not known.has_ended:
                    found[region].append(known)
        return found

    def _work_off(self, region: str) -> None:
        """Whoever comes while a call is under way is in the next one, whoever makes it."""
        queue = self._queues[region]
        with queue.busy:
            tickets = queue.take_all()
            try:
                for start in range(0, len(tickets), _MOST_AT_ONCE):
                    self._end_together(region, tickets[start : start + _MOST_AT_ONCE])
            finally:
                for ticket in tickets:
                    ticket.done.cancel()  # where it has no answer yet, nobody waits for one

    def _end_together(self, region: str, tickets: Sequence[_Ticket]) -> None:
        try:
            self._terminate(region, [ticket.owned for ticket in tickets])
        except (Throttled, Unavailable) as error:
            for ticket in tickets:
                ticket.done.set_exception(error)
        except ProviderError as error:
            if len(tickets) == 1:
                self._refused(tickets[0], error)
                return
            # EC2 refuses the whole call for one of them: the others are not to suffer for it.
            for ticket in tickets:
                self._end_together(region, [ticket])
        else:
            for ticket in tickets:
                ticket.done.set_result(None)

    def _refused(self, ticket: _Ticket, error: ProviderError) -> None:
        """What is gone has ended. What is new is not gone but not known yet: EC2 tells of what has
        ended for an hour.
        """
        age_seconds = self._register.age_seconds(ticket.owned.instance, self._clock.now())
        if not is_gone(error.__cause__):
            ticket.done.set_exception(error)
        elif age_seconds < self._visible_seconds:
            reason = "it is too new for EC2 to know it everywhere: again"
            ticket.done.set_exception(Unavailable(f"{error}: {reason}"))
        else:
            ticket.done.set_result(None)

    def _terminate(self, region: str, owned: Sequence[Owned]) -> None:
        for one in owned:
            if one.instance.tags.get(CONTROLLER_TAG) != self._controller:
                raise PermissionDenied(f"{one.instance.id} is not tagged as this deployment's")
        ids = list(dict.fromkeys(one.instance.id for one in owned))
        _log.info("%s: ending %s", region, ", ".join(ids))
        self._calls[region].terminate(ids)


@dataclass(frozen=True, slots=True)
class _Ticket:
    owned: Owned
    done: Future[None] = field(default_factory=Future)


class _Queue:
    """What waits to be ended in one region; who is `busy` takes all of it."""

    def __init__(self) -> None:
        self.busy = threading.Lock()
        self._waiting: list[_Ticket] = []
        self._lock = threading.Lock()

    def put(self, owned: Owned) -> Future[None]:
        ticket = _Ticket(owned)
        with self._lock:
            self._waiting.append(ticket)
        return ticket.done

    def take_all(self) -> list[_Ticket]:
        with self._lock:
            taken, self._waiting = self._waiting, []
            return taken
