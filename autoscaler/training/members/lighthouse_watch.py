"""Monitor of torchft's lighthouse: its connection, and the replicas that it hears."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
import urllib.request
from typing import Final
from urllib.parse import urlsplit

from autoscaler.clock import Clock
from autoscaler.training.members.attendance import Attendance

_CONNECT_SECONDS: Final = 5.0
_RECONNECT_SECONDS: Final = 0.1
_POLL_SECONDS: Final = 0.5
_PAGE_TIMEOUT_SECONDS: Final = 1.0
_HEARTBEAT_COUNT: Final = re.compile(r"\[(\d+) heartbeating\]")
_HEARTBEAT: Final = re.compile(r'class="heartbeat\s*(old)?\s*">\s*(\S+): seen ([\d.]+s)?')


class LighthouseWatch:
    """Monitor of the lighthouse, which detects its loss at once by an idle connection.

    After a loss, `is_there` holds again after `settling_seconds` of connection. `was_away` stays
    set until reset. While the lighthouse is there, its status page is read twice a second, and
    `attendance` receives the names on the page.
    """

    def __init__(
        self, address: str, settling_seconds: float, attendance: Attendance, clock: Clock
    ) -> None:
        parts = urlsplit(address)
        self._address = address
        self._endpoint = (parts.hostname or "", parts.port or 0)
        self._settling_seconds = settling_seconds
        self._attendance = attendance
        self._clock = clock
        self._doubted_seconds = float("-inf")
        self._connected_seconds = float("-inf")
        self.was_away = False
        self._stopped = threading.Event()
        self._connection = self._connect()
        threading.Thread(target=self._watch, name="castor-lighthouse-watch", daemon=True).start()

    @property
    def is_connected(self) -> bool:
        """Whether the lighthouse can be reached."""
        return self._connection is not None

    def knows_the_job(self) -> bool:
        """Return whether the lighthouse has had a chance to hear the job's replicas.

        True once it hears a replica, or after `settling_seconds` of connection.
        """
        if self._clock.monotonic() - self._connected_seconds >= self._settling_seconds:
            return True
        count = _HEARTBEAT_COUNT.search(self._status_page() or "")
        return count is not None and int(count[1]) > 0

    def silences(self) -> dict[str, float] | None:
        """Return the seconds since each live replica was heard; None without an answer."""
        page = self._status_page()
        return None if page is None else _alive_on(page)

    @property
    def is_there(self) -> bool:
        """Whether the lighthouse can be reached, and had time to hear all replicas."""
        since_seconds = self._clock.monotonic() - self._doubted_seconds
        return self.is_connected and since_seconds >= self._settling_seconds

    def doubt(self) -> None:
        """Restart the settling period, as the lighthouse may have been replaced."""
        self._doubted_seconds = self._clock.monotonic()
        self.was_away = True
        self._attendance.hear(None)

    def stop(self) -> None:
        """Stop monitoring and close the connection."""
        self._stopped.set()
        if self._connection is not None:
            self._connection.close()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            if self._connection is not None:
                with contextlib.suppress(OSError, ValueError):  # it breaks, or `stop` closes it
                    self._poll_until_closed(self._connection)
                self.doubt()
            self._connection = self._connect()
            if self._connection is None:
                self.doubt()
                self._stopped.wait(_RECONNECT_SECONDS)

    def _poll_until_closed(self, connection: socket.socket) -> None:
        while not select.select([connection], [], [], _POLL_SECONDS)[0]:
            page = self._status_page() if self.is_there else None
            self._attendance.hear(None if page is None else _alive_on(page))
        connection.recv(1)

    def _status_page(self) -> str | None:
        """Return the lighthouse's status page, which lists live replicas; None on failure."""
        try:
            with urllib.request.urlopen(
                f"{self._address}/status", timeout=_PAGE_TIMEOUT_SECONDS
            ) as page:
                return str(page.read().decode())
        except OSError:
            return None

    def _connect(self) -> socket.socket | None:
        try:
            connection = socket.create_connection(self._endpoint, timeout=_CONNECT_SECONDS)
        except OSError:
            return None
        self._connected_seconds = self._clock.monotonic()
        connection.settimeout(None)
        _enable_keepalive(connection)
        return connection


def _alive_on(page: str) -> dict[str, float]:
    heartbeats = _HEARTBEAT.findall(page)
    return {
        name: float(silence.rstrip("s") or 0.0)
        for is_old, name, silence in heartbeats
        if not is_old
    }


def _enable_keepalive(connection: socket.socket) -> None:
    """Make the kernel probe an idle connection for the loss of the other host.

    A lost host closes no connection. Without an answer the connection breaks after five seconds,
    instead of two hours.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
