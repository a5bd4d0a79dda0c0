"""Presence of replicas at the lighthouse, compared with the present members."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from autoscaler.clock import Clock

# Seconds after an agreement in which an unchanged set of names counts as the members.
_STALE_SECONDS: Final = 1.0


class Attendance:
    """Replicas that are heard, and the members. One thread calls `hear`; others query."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._members: frozenset[str] = frozenset()
        self._heard_names: frozenset[str] | None = None
        self._heard_at_forming: frozenset[str] | None = None
        self._formed_seconds = float("-inf")
        self._expects_leave = False

    def form(self, members: Iterable[str]) -> None:
        """Record the members that have just agreed on a membership."""
        self._members, self._heard_at_forming = frozenset(members), self._heard_names
        self._formed_seconds = self._clock.monotonic()
        self._expects_leave = False

    def hear(self, names: Iterable[str] | None) -> None:
        """Record the names whose heartbeats are received; None if the lighthouse is away."""
        self._heard_names = None if names is None else frozenset(names)

    def expect_leave(self) -> None:
        """Expect that a member leaves before the next `form`; its silence is then no loss."""
        self._expects_leave = True

    @property
    def differs(self) -> bool:
        """Whether a replica wants to join, or a member is missing."""
        return self._present != self._members

    @property
    def misses_member(self) -> bool:
        """Whether a member that announced no leave is silent."""
        return not self._expects_leave and not self._members <= self._present

    def misses(self, members: Iterable[str]) -> bool:
        """Return whether one of these future members is silent; False if nothing is known."""
        return self._heard_names is not None and not self._heard_names.issuperset(members)

    @property
    def _present(self) -> frozenset[str]:
        """Names that are heard; the members if nothing newer is known."""
        is_old = self._clock.monotonic() - self._formed_seconds < _STALE_SECONDS
        if self._heard_names is None or (is_old and self._heard_names == self._heard_at_forming):
            return self._members
        return self._heard_names
