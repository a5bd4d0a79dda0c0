"""What is to happen in a project, in the order of time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

Event = Callable[[float], None]


class Agenda:
    """Events with their moments; nothing happens before somebody looks."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Event]] = []
        self._numbers = itertools.count()

    def at(self, seconds: float, event: Event) -> None:
        """`event` is called with its own moment, however late somebody looks."""
        heapq.heappush(self._events, (seconds, next(self._numbers), event))

    def pass_until(self, now_seconds: float) -> None:
        while self._events and self._events[0][0] <= now_seconds:
            seconds, _, event = heapq.heappop(self._events)
            event(seconds)
