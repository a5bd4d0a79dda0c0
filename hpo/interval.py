"""Things that are done again after a time, and not more often."""

from __future__ import annotations

from autoscaler.clock import Clock


class Interval:
    """An interval of `seconds` between two times at which something is due; first at once."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._last_seconds = -seconds

    def is_due(self) -> bool:
        """Return whether the interval is over; if so, the next one begins."""
        if not self.is_over:
            return False
        self._last_seconds = self._clock.monotonic()
        return True

    @property
    def is_over(self) -> bool:
        """Whether it is due, without beginning the next interval."""
        return self._clock.monotonic() - self._last_seconds >= self._seconds

    @property
    def left_seconds(self) -> float:
        """Seconds until it is due; 0 if it is."""
        return max(self._last_seconds + self._seconds - self._clock.monotonic(), 0.0)

    def end(self) -> None:
        """Let it be due at once."""
        self._last_seconds = self._clock.monotonic() - self._seconds
