"""Facts that are asked for once in a while, and answered from memory in between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from autoscaler.clock import Clock
from autoscaler.domain.errors import ProviderError

Fact = TypeVar("Fact")


class Remembered(Generic[Fact]):
    """One fact, asked for again when it is `every_seconds` old.

    A failure is remembered, too: for `retry_seconds` it is raised without a call, so that a loop
    that asks each second does not call each second.
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
        self._known: tuple[float, Fact] | None = None
        self._failed: tuple[float, ProviderError] | None = None
        self._lock = threading.Lock()

    def get(self) -> Fact:
        """The fact as it is.

        Raises:
            ProviderError: it can't be had now; `last` may do.
        """
        with self._lock:
            now_seconds = self._clock.now()
            if self._known is not None and now_seconds - self._known[0] < self._every_seconds:
                return self._known[1]
            if self._failed is not None and now_seconds - self._failed[0] < self._retry_seconds:
                raise self._failed[1]
            try:
                fact = self._ask()
            except ProviderError as error:
                self._failed = now_seconds, error
                raise
            self._known, self._failed = (now_seconds, fact), None
            return fact

    @property
    def last(self) -> Fact | None:
        """The fact as it was, whatever its age; None if it never was had."""
        return None if self._known is None else self._known[1]
