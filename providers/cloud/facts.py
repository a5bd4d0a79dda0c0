"""Facts that are fetched at intervals and cached in between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from autoscaler.clock import Clock
from autoscaler.domain.errors import ProviderError

Fact = TypeVar("Fact")


class TTLValue(Generic[Fact]):
    """Cached fact, fetched again when it is `every_seconds` old. `get` is thread-safe.

    A failure is cached for `retry_seconds`: `get` raises it again without a call.
    """

    def __init__(
        self,
        ask: Callable[[], Fact],
        every_seconds: float,
        retry_seconds: float,
        clock: Clock,
    ) -> None:
        self._ask = ask
        self._every_seconds = every_seconds
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._cached: tuple[float, Fact] | None = None
        self._failure: tuple[float, ProviderError] | None = None
        self._lock = threading.Lock()

    def get(self) -> Fact:
        """Return the fact, fetched if the cached one is too old.

        Raises:
            ProviderError: the fetch failed now or less than `retry_seconds` ago; `last` may serve.
        """
        with self._lock:
            now_seconds = self._clock.now()
            if self._cached is not None and now_seconds - self._cached[0] < self._every_seconds:
                return self._cached[1]
            if self._failure is not None and now_seconds - self._failure[0] < self._retry_seconds:
                raise self._failure[1]
            try:
                fact = self._ask()
            except ProviderError as error:
                self._failure = now_seconds, error
                raise
            self._cached, self._failure = (now_seconds, fact), None
            return fact

    @property
    def last(self) -> Fact | None:
        """Last fetched fact, of any age; None if no fetch has succeeded."""
        return None if self._cached is None else self._cached[1]
