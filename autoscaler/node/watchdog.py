"""Tells the instance's service manager that the agent is at work.

systemd hands each of its services a socket (sd_notify(3)). A service that has to speak there at
least so often (`WatchdogSec=`) and does not is ended: with it ends an instance whose agent hangs,
which else would notice neither its orders nor the end of its lease. Where there is no such socket
nobody listens, and nothing is said.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from typing import Final

from autoscaler.clock import Clock

_log = logging.getLogger(__name__)

ADDRESS_VARIABLE: Final = "NOTIFY_SOCKET"
INTERVAL_SECONDS: Final = 10.0
_SIGN_OF_LIFE: Final = b"READY=1\nWATCHDOG=1"


class Watchdog:
    """The service manager that `environ` tells of, if any."""

    def __init__(self, environ: Mapping[str, str], clock: Clock) -> None:
        self._address = environ.get(ADDRESS_VARIABLE)
        self._clock = clock
        self._fed_seconds = float("-inf")

    def feed(self) -> None:
        """Say that the agent has joined and is at work, unless that was said a moment ago."""
        now_seconds = self._clock.monotonic()
        if self._address is None or now_seconds - self._fed_seconds < INTERVAL_SECONDS:
            return
        self._fed_seconds = now_seconds
        path = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
                speaker.setblocking(False)
                speaker.sendto(_SIGN_OF_LIFE, path)
        except OSError as error:
            _log.warning("%s=%s: %s", ADDRESS_VARIABLE, self._address, error)
