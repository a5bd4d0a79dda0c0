"""Exponential back-off between retries."""

from __future__ import annotations

_FIRST_SECONDS = 0.25
_LONGEST_SECONDS = 10.0
_MOST_DOUBLINGS = 64  # no delay here doubles more often before it reaches the longest one


def delay_seconds(failures: int, first_seconds: float, longest_seconds: float) -> float:
    """Return the delay after so many failures in sequence, at least 1, in seconds.

    It doubles with each, from `first_seconds` up to `longest_seconds`.
    """
    doublings = min(failures - 1, _MOST_DOUBLINGS)
    return min(first_seconds * 2.0**doublings, longest_seconds)


class BackOff:
    """Retry delays that double after each failure, from 0.25 s up to 10 s.

    The first delays are short, so clients reach a restarted controller within about two seconds.
    `waited_seconds` is the sum of the delays since the last success.
    """

    def __init__(self) -> None:
        self._failures = 0
        self.waited_seconds = 0.0

    def next_seconds(self) -> float:
        """Return the delay before the next retry, in seconds, and double the delay after it."""
        self._failures += 1
        wait_seconds = delay_seconds(self._failures, _FIRST_SECONDS, _LONGEST_SECONDS)
        self.waited_seconds += wait_seconds
        return wait_seconds

    def reset(self) -> None:
        """Start again with the shortest delay after a success."""
        self._failures, self.waited_seconds = 0, 0.0
