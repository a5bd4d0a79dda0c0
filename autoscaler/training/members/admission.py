"""Whether joiners may begin a training among themselves, under torchft's lighthouse."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from autoscaler.clock import Clock

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 0.1
_LONGEST_LOOK_SECONDS: Final = 5.0
_LOG_SECONDS: Final = 30.0


class Hears(Protocol):
    """What is asked of the lighthouse."""

    def silences(self) -> Mapping[str, float] | None:
        """Return how long ago, in seconds, each one was heard; None without an answer."""
        ...


class Admission:
    """Keeps joiners from a second training beside one that they have not met.

    Joiners that are more than the members get a quorum of their own while those are in a long
    step, evaluate, or hand over a state. They must not train in it: two trainings would have steps
    of equal numbers. So they begin only where the lighthouse hears nobody else. A silent one is
    missed after `heartbeat_seconds`.
    """

    def __init__(self, lighthouse: Hears, heartbeat_seconds: float, clock: Clock) -> None:
        self._lighthouse = lighthouse
        self._heartbeat_seconds = heartbeat_seconds
        self._clock = clock
        self._refused_seconds: float | None = None
        self._log_seconds = _LOG_SECONDS

    def may_begin(self, members: Iterable[str]) -> bool:
        """Return whether the lighthouse hears nobody but these `members`, all of them joiners.

        Another one that has just fallen silent is waited for until it is missed, for twice the
        time that this takes or `_LONGEST_LOOK_SECONDS` at most. One that is alive is no reason to
        wait here: it would ask for a quorum in vain while the members stay in theirs. So is a
        lighthouse that does not say whom it hears.
        """
        members = frozenset(members)
        look_seconds = max(2 * self._heartbeat_seconds, _LONGEST_LOOK_SECONDS)
        deadline_seconds = self._clock.monotonic() + look_seconds
        while (others := self._others(members)) is None or others:
            is_alive = others is not None and min(others.values()) < self._heartbeat_seconds / 2
            if is_alive or self._clock.monotonic() >= deadline_seconds:
                self._log_refusal(others)
                self._clock.sleep(_PATIENCE_SECONDS)
                return False
            self._clock.sleep(_PATIENCE_SECONDS)
        self._refused_seconds = None
        return True

    def _others(self, members: frozenset[str]) -> dict[str, float] | None:
        """Return how long ago, in seconds, each one that is no member was heard."""
        silences = self._lighthouse.silences()
        if silences is None:
            return None
        return {name: silences[name] for name in silences.keys() - members}

    def _log_refusal(self, others: Mapping[str, float] | None) -> None:
        """Say every half minute what is awaited; how long that takes is theirs to say."""
        now_seconds = self._clock.monotonic()
        if self._refused_seconds is None:
            self._refused_seconds, self._log_seconds = now_seconds, _LOG_SECONDS
        waited_seconds = now_seconds - self._refused_seconds
        if waited_seconds < self._log_seconds:
            return
        self._log_seconds += _LOG_SECONDS
        if others is None:
            _log.warning(
                "%.0f s of waiting for the lighthouse to say whom it hears: its status page does "
                "not answer",
                waited_seconds,
            )
            return
        names = ", ".join(sorted(name.partition(":")[0] for name in others))
        _log.warning(
            "%.0f s of waiting for %s, heard by the lighthouse and not met yet: in a long step, "
            "an evaluation or a transfer, or hanging, which ends with its process",
            waited_seconds,
            names,
        )
