"""Repository of notices to people and of their deliveries: an outbox."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass

from autoscaler.domain.notice import Delivery, NoticeKey, UserNotice


@dataclass(frozen=True, slots=True)
class KnownNotice:
    """Key of a stored notice, and whether its condition lasts; events are over at once."""

    key: NoticeKey
    is_open: bool


class UserNotices(ABC):
    """Notices of one store, with one delivery for each target that should get them."""

    @abstractmethod
    def add(self, notice: UserNotice, targets: Collection[str]) -> bool:
        """Store a notice with its deliveries; return False if one with its key is stored."""

    @abstractmethod
    def end(self, key: NoticeKey, now_seconds: float) -> None:
        """Record that the condition of a notice is over. Repeats have no effect."""

    @abstractmethod
    def known(self) -> tuple[KnownNotice, ...]:
        """Return all stored notices, the oldest first."""

    @abstractmethod
    def waiting(self, target: str, limit: int = 100) -> tuple[Delivery, ...]:
        """Return at most `limit` deliveries that wait for a target, those due first."""

    @abstractmethod
    def latest(self, limit: int = 100, below: int | None = None) -> tuple[Delivery, ...]:
        """Return at most `limit` deliveries, those of the latest notices first.

        With `below`, only those with smaller numbers.
        """

    @abstractmethod
    def record(self, delivery: Delivery) -> None:
        """Store the state of a delivery after an attempt."""

    @abstractmethod
    def give_up_others(
        self, targets: Collection[str], error: str, now_seconds: float
    ) -> tuple[Delivery, ...]:
        """Give up what waits for any target but these, with an error; return it."""
