"""Lease that makes a process the only driver of a study."""

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
_STOP_MESSAGES = {
    StudyStop.WITH_ITS_TRIALS: "no further trial begins, and running trials are completed",
    StudyStop.AT_ONCE: "its jobs end",
}


class DriverLease:
    """Lease of one study; each renewal also returns whether the study is to stop.

    Attributes:
        holder: name of this driver at the controller.
        stop: the request to stop the study, from the last renewal.
        is_lost: whether another driver has, or has had, the lease, and with it the study's jobs.
    """

    def __init__(self, study_client: StudyClient, holder: str, clock: Clock) -> None:
        self._study_client = study_client
        self._clock = clock
        self._renewed_seconds = -_RENEW_SECONDS
        self._was_held = False
        self.holder = holder
        self.stop = StudyStop.NOT
        self.is_lost = False

    def renew(self) -> None:
        """Renew the lease if `_RENEW_SECONDS` have passed since the last renewal.

        Raises:
            Conflict: another driver holds the lease, or has held it since.
            Unavailable: the controller is unavailable.
        """
        if self._clock.monotonic() - self._renewed_seconds >= _RENEW_SECONDS:
            self._take()

    def renew_if_available(self) -> None:
        """Renew the lease; ignore an unavailable controller."""
        with contextlib.suppress(Unavailable):
            self.renew()

    def call_with_lease(self, call: Callable[[], Value]) -> Value:
        """Return the result of a call that needs the lease; take an expired lease again.

        Raises:
            Conflict: another driver has taken the lease, and `is_lost`; or the call conflicts
                with something else.
        """
        try:
            return call()
        except Conflict:
            self._take()
            return call()

    def release(self) -> None:
        """Release the lease; log a warning on failure."""
        try:
            self._study_client.leave(self.holder)
        except CastorError as error:
            _log.warning("the study's lease could not be released, and expires later: %s", error)

    def _take(self) -> None:
        try:
            lease = StudyLease(self.holder, LEASE_SECONDS)
            stop = self._study_client.lease(lease, self._was_held)
        except Conflict:
            self.is_lost = True
            raise
        if stop not in (self.stop, StudyStop.NOT):
            _log.warning("the study is stopped: %s", _STOP_MESSAGES[stop])
        self.stop, self._was_held = stop, True
        self._renewed_seconds = self._clock.monotonic()
