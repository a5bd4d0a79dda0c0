"""Rate limit for repeated actions."""

from __future__ import annotations

from autoscaler.clock import Clock


class Interval:
    """Rate limit that lets an action run at most once in `seconds`.

    The first run is due at once.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._last_seconds = -seconds

    def is_due(self) -> bool:
        """Return whether the interval has passed; if so, start the next interval."""
        if not self.is_over:
            return False
        self._last_seconds = self._clock.monotonic()
        return True

    @property
    def is_over(self) -> bool:
        """Whether the interval has passed; does not start the next interval."""
        return self._clock.monotonic() - self._last_seconds >= self._seconds

    @property
    def left_seconds(self) -> float:
        """Seconds until the interval has passed; 0 if it has."""
        return max(self._last_seconds + self._seconds - self._clock.monotonic(), 0.0)

    def end(self) -> None:
        """End the interval now, so that the next `is_due` returns True."""
        self._last_seconds = self._clock.monotonic() - self._seconds
