"""Refusals in memory."""

from __future__ import annotations

from collections.abc import Mapping

from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.capacity import Capacity, Refusal, Refuse


class MemoryCapacity(Capacity):
    """Refusals by offer, in memory."""

    def __init__(self, tables: Tables) -> None:
        self._lock = tables.lock
        self._refusals = tables.refusals

    def accepted(self, offer: str) -> None:
        with self._lock:
            self._refusals.pop(offer, None)

    def refusals(self) -> Mapping[str, Refusal]:
        with self._lock:
            return dict(self._refusals)

    def unavailable(self, now_seconds: float) -> frozenset[str]:
        with self._lock:
            return frozenset(
                refusal.offer for refusal in self._refusals.values() if refusal.holds(now_seconds)
            )

    def _change(self, offer: str, refuse: Refuse) -> Refusal:
        with self._lock:
            refusal = refuse(self._refusals.get(offer))
            self._refusals[offer] = refusal
            return refusal
