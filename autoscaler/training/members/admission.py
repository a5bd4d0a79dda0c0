"""Admission of a group of joiners to a new training, under torchft's lighthouse."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from autoscaler.clock import Clock

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.1
_LEAST_WAIT_SECONDS: Final = 5.0
_LOG_SECONDS: Final = 30.0


class HeartbeatSource(Protocol):
    """Interface of the lighthouse for `Admission`."""

    def silences(self) -> Mapping[str, float] | None:
        """Return the seconds since each replica was heard, by name; None without an answer."""
        ...


class Admission:
    """Guard that keeps joiners from starting a second training beside one they have not met.

    Joiners that outnumber the members get a quorum of their own while the members are in a long
    step, evaluate, or transfer a state. They must not train in it: two trainings would have steps
    of equal numbers. Joiners therefore begin only if the lighthouse hears no other replica. The
    lighthouse drops a silent replica after `heartbeat_seconds`.
    """

    def __init__(
        self, lighthouse: HeartbeatSource, heartbeat_seconds: float, clock: Clock
    ) -> None:
        self._lighthouse = lighthouse
        self._heartbeat_seconds = heartbeat_seconds
        self._clock = clock
        self._refused_seconds: float | None = None
        self._log_seconds = _LOG_SECONDS

    def may_begin(self, members: Iterable[str]) -> bool:
        """Return whether the lighthouse hears only these `members`, all of them joiners.

        A replica that has just fallen silent is awaited until the lighthouse drops it. The wait
        lasts twice the heartbeat timeout, and at least `_LEAST_WAIT_SECONDS`. An unanswered status
        request is awaited as long. If another replica is alive, the result is False at once: the
        members stay in their quorum, and that replica would request one in vain.
        """
        members = frozenset(members)
        wait_seconds = max(2 * self._heartbeat_seconds, _LEAST_WAIT_SECONDS)
        deadline_seconds = self._clock.monotonic() + wait_seconds
        while (others := self._others(members)) is None or others:
            is_alive = others is not None and min(others.values()) < self._heartbeat_seconds / 2
            if is_alive or self._clock.monotonic() >= deadline_seconds:
                self._log_refusal(others)
                self._clock.sleep(_POLL_SECONDS)
                return False
            self._clock.sleep(_POLL_SECONDS)
        self._refused_seconds = None
        return True

    def _others(self, members: frozenset[str]) -> dict[str, float] | None:
        """Return the seconds since each other replica was heard; None without an answer."""
        silences = self._lighthouse.silences()
        if silences is None:
            return None
        return {name: silences[name] for name in silences.keys() - members}

    def _log_refusal(self, others: Mapping[str, float] | None) -> None:
        """Log every 30 s which replicas are awaited."""
        now_seconds = self._clock.monotonic()
        if self._refused_seconds is None:
            self._refused_seconds, self._log_seconds = now_seconds, _LOG_SECONDS
        waited_seconds = now_seconds - self._refused_seconds
        if waited_seconds < self._log_seconds:
            return
        self._log_seconds += _LOG_SECONDS
        if others is None:
            _log.warning(
                "waited %.0f s for the lighthouse's list of live replicas: its status page does "
                "not answer",
                waited_seconds,
            )
            return
        names = ", ".join(sorted(name.partition(":")[0] for name in others))
        _log.warning(
            "waited %.0f s for %s, heard by the lighthouse and not met yet: in a long step, "
            "an evaluation or a transfer, or hanging, which ends with its process",
            waited_seconds,
            names,
        )
