"""Repository of events for people: an instance lost, a launch refused, an orphan found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a job, or of the fleet if `job` is None, in seconds since the epoch."""

    at_seconds: float
    kind: str
    text: str
    job: str | None = None


class Events(ABC):
    """Events of one store. Events are added and, when they are old, deleted."""

    @abstractmethod
    def add(self, event: Event) -> None:
        """Store an event."""

    @abstractmethod
    def latest(self, job: str | None = None, limit: int = 100) -> tuple[Event, ...]:
        """Return at most `limit` events of one job, or of all if None, the latest first."""

    @abstractmethod
    def prune(self, before_seconds: float) -> None:
        """Delete the events before `before_seconds`."""
