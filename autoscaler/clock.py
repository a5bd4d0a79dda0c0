"""Clocks passed as values, so that simulations and tests control time."""

from __future__ import annotations

import threading
import time
from typing import Protocol


def is_waiting(until_seconds: float, now_seconds: float, longest_seconds: float) -> bool:
    """Return whether a stored wait of at most `longest_seconds` goes on until `until_seconds`.

    A later end was stored before the clock was set back: such a wait is over.
    """
    return now_seconds < until_seconds <= now_seconds + longest_seconds


class Clock(Protocol):
    """Source of the current time for code that decides and waits."""

    def now(self) -> float:
        """Return the seconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Return the seconds of a clock that never goes back, for measuring durations."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`; a virtual clock advances instead."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Return the seconds since the Unix epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary moment."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Block this thread for `seconds`."""
        time.sleep(seconds)


class VirtualClock:
    """A clock that advances only by `sleep` and `advance`. Safe to share between threads."""

    def __init__(self, start_seconds: float = 0.0) -> None:
        self._now_seconds = start_seconds
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return the clock's seconds since the Unix epoch."""
        with self._lock:
            return self._now_seconds

    def monotonic(self) -> float:
        """Return the same value as `now`, which never goes back."""
        return self.now()

    def sleep(self, seconds: float) -> None:
        """Advance the clock by `seconds` and return at once."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Advance the clock by `seconds`.

        Raises:
            ValueError: `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError(f"seconds={seconds}: a clock can't go back")
        with self._lock:
            self._now_seconds += seconds
