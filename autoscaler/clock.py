"""Time as a value that is passed in, so that a simulation or a test can own it."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What the code that decides and waits may know of time."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back: for durations."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`; a virtual clock jumps instead."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Block this thread for `seconds`."""
        time.sleep(seconds)


class VirtualClock:
    """A clock that stands still until it is told to move. Safe to share between threads."""

    def __init__(self, start_seconds: float = 0.0) -> None:
        self._now_seconds = start_seconds
        self._lock = threading.Lock()

    def now(self) -> float:
        """Seconds since the Unix epoch, as this clock was set."""
        with self._lock:
            return self._now_seconds

    def monotonic(self) -> float:
        """The same as `now`: this clock does not go back either."""
        return self.now()

    def sleep(self, seconds: float) -> None:
        """Move the clock forward by `seconds` and return at once."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move the clock forward.

        Raises:
            ValueError: `seconds` is negative; time does not go back.
        """
        if seconds < 0:
            raise ValueError(f"seconds={seconds}: a clock does not go back")
        with self._lock:
            self._now_seconds += seconds
