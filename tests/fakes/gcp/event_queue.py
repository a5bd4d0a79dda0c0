"""Events of a project that are due at a time of its clock."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

Event = Callable[[float], None]


class EventQueue:
    """Events by their times. An event runs when the project's time is next read."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Event]] = []
        self._numbers = itertools.count()

    def schedule(self, seconds: float, event: Event) -> None:
        """Schedule an event; it is called with its due time, however late it runs."""
        heapq.heappush(self._events, (seconds, next(self._numbers), event))

    def run_until(self, now_seconds: float) -> None:
        """Run all events that are due by a time, in order."""
        while self._events and self._events[0][0] <= now_seconds:
            seconds, _, event = heapq.heappop(self._events)
            event(seconds)
