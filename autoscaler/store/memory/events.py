"""Events in memory."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice

from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.events import Event, Events


class MemoryEvents(Events):
    """Events in order of arrival, in total and by job."""

    def __init__(self, tables: Tables) -> None:
        self._lock = tables.lock
        self._events: list[Event] = []
        self._of_job: dict[str, list[Event]] = defaultdict(list)

    def add(self, event: Event) -> None:
        with self._lock:
            self._add(event)

    def latest(self, job: str | None = None, limit: int = 100) -> tuple[Event, ...]:
        with self._lock:
            events = self._events if job is None else self._of_job.get(job, [])
            return tuple(islice(reversed(events), limit))

    def prune(self, before_seconds: float) -> None:
        with self._lock:
            kept = [event for event in self._events if event.at_seconds >= before_seconds]
            self._events.clear()
            self._of_job.clear()
            for event in kept:
                self._add(event)

    def _add(self, event: Event) -> None:
        self._events.append(event)
        if event.job is not None:
            self._of_job[event.job].append(event)
