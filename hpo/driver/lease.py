"""A driver's hold on its study."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, Conflict, Unavailable
from autoscaler.domain.trial import StudyStop
from autoscaler.wire.client import StudyClient
from autoscaler.wire.study_messages import StudyLease

_log = logging.getLogger(__name__)

Value = TypeVar("Value")

LEASE_SECONDS: Final = 30.0
_RENEW_SECONDS = 5.0
_STOPS = {
    StudyStop.WITH_ITS_TRIALS: "no trial begins any more, those that run go on to their ends",
    StudyStop.AT_ONCE: "its jobs end",
}


class Lease:
    """The right to drive one study, renewed now and then; with it comes whether to stop."""

    def __init__(self, line: StudyClient, holder: str, clock: Clock) -> None:
        self._line = line
        self._clock = clock
        self._renewed_seconds = -_RENEW_SECONDS
        self.holder = holder
        self.stop = StudyStop.NOT

    def renew(self) -> None:
        """Take it if it was taken long ago, or never.

        Raises:
            Conflict: another driver has the study.
            Unavailable: the controller is away.
        """
        if self._clock.monotonic() - self._renewed_seconds >= _RENEW_SECONDS:
            self._take()

    def keep(self) -> None:
        """Stay the driver while something else is waited for."""
        with contextlib.suppress(Unavailable):
            self.renew()

    def holding(self, call: Callable[[], Value]) -> Value:
        """What only the driver may do. If its lease ran out, for it slept, it is taken again.

        Raises:
            Conflict: another driver has the study by now.
        """
        try:
            return call()
        except Conflict:
            self._take()
            return call()

    def leave(self) -> None:
        """Drive the study no more."""
        try:
            self._line.leave(self.holder)
        except CastorError as error:
            _log.warning("the study's lease is left to run out: %s", error)

    def _take(self) -> None:
        told = self._line.lease(StudyLease(self.holder, LEASE_SECONDS))
        if told not in (self.stop, StudyStop.NOT):
            _log.warning("the study is stopped: %s", _STOPS[told])
        self.stop = told
        self._renewed_seconds = self._clock.monotonic()
