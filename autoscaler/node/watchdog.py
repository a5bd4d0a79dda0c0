"""Watchdog messages to the service manager of the instance.

systemd gives each service a socket (sd_notify(3)), and ends a service that sends nothing for
`WatchdogSec=`. So an instance ends whose agent hangs, and would notice neither its orders nor the
end of its lease. Without such a socket, the agent sends nothing.
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
_KEEP_ALIVE_MESSAGE: Final = b"READY=1\nWATCHDOG=1"


class Watchdog:
    """Watchdog of the service manager that `environ` names, if any."""

    def __init__(self, environ: Mapping[str, str], clock: Clock) -> None:
        self._address = environ.get(ADDRESS_VARIABLE)
        self._clock = clock
        self._fed_seconds = float("-inf")

    def feed(self) -> None:
        """Report that the agent is running, at most once in `INTERVAL_SECONDS`."""
        now_seconds = self._clock.monotonic()
        if self._address is None or now_seconds - self._fed_seconds < INTERVAL_SECONDS:
            return
        self._fed_seconds = now_seconds
        path = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(_KEEP_ALIVE_MESSAGE, path)
        except OSError as error:
            _log.warning("%s=%s: %s", ADDRESS_VARIABLE, self._address, error)
