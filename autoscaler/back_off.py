"""How long to wait before the next try."""

from __future__ import annotations

_FIRST_SECONDS = 0.25
_LONGEST_SECONDS = 10.0


class BackOff:
    """Waits that double up to a limit.

    The first are short: a controller that is started again is back after two seconds.
    `waited_seconds` is how long they were in all, since it has gone well.
    """

    def __init__(self) -> None:
        self._next_seconds = _FIRST_SECONDS
        self.waited_seconds = 0.0

    def next_seconds(self) -> float:
        """The wait after one more failure."""
        wait_seconds = self._next_seconds
        self.waited_seconds += wait_seconds
        self._next_seconds = min(2 * wait_seconds, _LONGEST_SECONDS)
        return wait_seconds

    def reset(self) -> None:
        """It has gone well."""
        self._next_seconds, self.waited_seconds = _FIRST_SECONDS, 0.0
