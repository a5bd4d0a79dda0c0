"""Notices in memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from autoscaler.domain.notice import LASTING, Delivery, DeliveryState, NoticeKey, UserNotice
from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.notices import KnownNotice, UserNotices


class MemoryNotices(UserNotices):
    """Notices by key, and deliveries by their numbers, which begin at 1."""

    def __init__(self, tables: Tables) -> None:
        self._lock = tables.lock
        self._open: dict[NoticeKey, bool] = {}
        self._deliveries: dict[int, Delivery] = {}

    def add(self, notice: UserNotice, targets: Collection[str]) -> bool:
        with self._lock:
            if notice.key in self._open:
                return False
            self._open[notice.key] = notice.key.kind in LASTING
            for target in targets:
                number = len(self._deliveries) + 1
                self._deliveries[number] = Delivery(
                    number, target, notice, DeliveryState.WAITING, 0, notice.at_seconds
                )
            return True

    def end(self, key: NoticeKey, now_seconds: float) -> None:
        with self._lock:
            if key in self._open:
                self._open[key] = False

    def known(self) -> tuple[KnownNotice, ...]:
        with self._lock:
            return tuple(KnownNotice(key, is_open) for key, is_open in self._open.items())

    def waiting(self, target: str, limit: int = 100) -> tuple[Delivery, ...]:
        with self._lock:
            waiting = [entry for entry in self._waiting() if entry.target == target]
            waiting.sort(key=lambda entry: (entry.next_seconds, entry.number))
            return tuple(waiting[:limit])

    def latest(self, limit: int = 100, below: int | None = None) -> tuple[Delivery, ...]:
        with self._lock:
            listed = [
                entry
                for entry in self._deliveries.values()
                if below is None or entry.number < below
            ]
            return tuple(sorted(listed, key=_newest_first)[:limit])

    def record(self, delivery: Delivery) -> None:
        with self._lock:
            self._deliveries[delivery.number] = delivery

    def give_up_others(
        self, targets: Collection[str], error: str, now_seconds: float
    ) -> tuple[Delivery, ...]:
        with self._lock:
            dropped = tuple(
                replace(entry, state=DeliveryState.GIVEN_UP, error=error, done_seconds=now_seconds)
                for entry in self._waiting()
                if entry.target not in targets
            )
            self._deliveries.update({entry.number: entry for entry in dropped})
            return dropped

    def _waiting(self) -> list[Delivery]:
        return [
            entry for entry in self._deliveries.values() if entry.state is DeliveryState.WAITING
        ]


def _newest_first(delivery: Delivery) -> int:
    return -delivery.number
