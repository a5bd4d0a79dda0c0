"""Settings in memory."""

from __future__ import annotations

from collections.abc import Callable

from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.settings import Settings


class MemorySettings(Settings):
    """Settings by key, in memory."""

    def __init__(self, tables: Tables) -> None:
        self._lock = tables.lock
        self._values: dict[str, str] = {}

    def once(self, key: str, make: Callable[[], str]) -> str:
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            return self._values[key]

    def _value(self, key: str) -> str | None:
        with self._lock:
            return self._values.get(key)

    def _put(self, key: str, value: str) -> None:
        with self._lock:
            self._values[key] = value

    def _drop(self, key: str) -> None:
        with self._lock:
            self._values.pop(key, None)
