"""What happened, in words for a person: an instance lost, a launch refused, an orphan found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a job, or to the fleet where `job` is None."""

    at_seconds: float
    kind: str
    text: str
    job: str | None = None


class Events(ABC):
    """The events of one store; they are only added, and forgotten when they are old."""

    @abstractmethod
    def add(self, event: Event) -> None:
        """Keep an event."""

    @abstractmethod
    def latest(self, job: str | None = None, limit: int = 100) -> tuple[Event, ...]:
        """The last events of one job, or of everything, the latest first."""

    @abstractmethod
    def prune(self, before_seconds: float) -> None:
        """Forget the events before then."""
