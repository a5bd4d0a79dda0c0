"""Who the lighthouse hears, beside those who are members."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from autoscaler.clock import Clock

# What was heard when the members last agreed is no reason to agree again at once.
_AGAIN_SECONDS: Final = 1.0


class Attendance:
    """Who is there and who should be. One thread hears; others ask."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._members: frozenset[str] = frozenset()
        self._heard: frozenset[str] | None = None
        self._known: frozenset[str] | None = None
        self._formed_seconds = float("-inf")
        self._expects_leave = False

    def form(self, members: Iterable[str]) -> None:
        """Note that the members have just agreed on who they are."""
        self._members, self._known = frozenset(members), self._heard
        self._formed_seconds = self._clock.monotonic()
        self._expects_leave = False

    def hear(self, names: Iterable[str] | None) -> None:
        """Note who sends signs of life; None while the lighthouse does not say."""
        self._heard = None if names is None else frozenset(names)

    def expect_leave(self) -> None:
        """Note that a member leaves before the next `form`: its silence is no loss."""
        self._expects_leave = True

    @property
    def differs(self) -> bool:
        """Another one wants to join, or a member is gone."""
        return self._news != self._members

    @property
    def misses_member(self) -> bool:
        """A member that did not announce its leave sends no signs of life."""
        return not self._expects_leave and not self._members <= self._news

    def misses(self, members: Iterable[str]) -> bool:
        """Return whether one of these, who are about to agree, sends no signs of life."""
        return self._heard is not None and not self._heard.issuperset(members)

    @property
    def _news(self) -> frozenset[str]:
        """Who is heard; the members, as long as nothing new was heard."""
        is_old = self._clock.monotonic() - self._formed_seconds < _AGAIN_SECONDS
        if self._heard is None or (is_old and self._heard == self._known):
            return self._members
        return self._heard
