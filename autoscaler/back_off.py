"""Exponential back-off between retries."""

from __future__ import annotations

_FIRST_SECONDS = 0.25
_LONGEST_SECONDS = 10.0


class BackOff:
    """Retry delays that double after each failure, from 0.25 s up to 10 s.

    The first delays are short, so clients reach a restarted controller within about two seconds.
    `waited_seconds` is the sum of the delays since the last success.
    """

    def __init__(self) -> None:
        self._next_seconds = _FIRST_SECONDS
        self.waited_seconds = 0.0

    def next_seconds(self) -> float:
        """Return the delay before the next retry, in seconds, and double the delay after it."""
        delay_seconds = self._next_seconds
        self.waited_seconds += delay_seconds
        self._next_seconds = min(2 * delay_seconds, _LONGEST_SECONDS)
        return delay_seconds

    def reset(self) -> None:
        """Start again with the shortest delay after a success."""
        self._next_seconds, self.waited_seconds = _FIRST_SECONDS, 0.0
