"""A watch on torchft's lighthouse: whether it is there, and whose heartbeats it hears."""

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
_PATIENCE_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 0.5
_PAGE_SECONDS: Final = 1.0
_HEARD: Final = re.compile(r"\[(\d+) heartbeating\]")
_HEARTBEAT: Final = re.compile(r'class="heartbeat\s*(old)?\s*">\s*(\S+): seen ([\d.]+s)?')


class LighthouseWatch:
    """Knows at once when the lighthouse goes away: it holds an idle connection open.

    One that came back `is_there` again once it has been connected for `settling_seconds`;
    `was_away` stays until it is reset. While it is there, its status page is read twice a second,
    and `attendance` hears who is on it.
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
        """It can be reached."""
        return self._connection is not None

    def knows_the_job(self) -> bool:
        """It hears somebody's heartbeats, or nobody had any to send for long enough."""
        if self._clock.monotonic() - self._connected_seconds >= self._settling_seconds:
            return True
        heard = _HEARD.search(self._page() or "")
        return heard is not None and int(heard[1]) > 0

    def silences(self) -> dict[str, float] | None:
        """Ask how long ago, in seconds, it heard each one that it does not miss yet.

        None if it does not answer.
        """
        page = self._page()
        return None if page is None else _alive_on(page)

    @property
    def is_there(self) -> bool:
        """It can be reached, and has been for long enough to hear everybody."""
        since_seconds = self._clock.monotonic() - self._doubted_seconds
        return self.is_connected and since_seconds >= self._settling_seconds

    def doubt(self) -> None:
        """It may have been another one a moment ago."""
        self._doubted_seconds = self._clock.monotonic()
        self.was_away = True
        self._attendance.hear(None)

    def stop(self) -> None:
        """Watch no more."""
        self._stopped.set()
        if self._connection is not None:
            self._connection.close()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            if self._connection is not None:
                with contextlib.suppress(OSError, ValueError):  # it breaks, or `stop` closes it
                    self._look_until_closed(self._connection)
                self.doubt()
            self._connection = self._connect()
            if self._connection is None:
                self.doubt()
                self._stopped.wait(_PATIENCE_SECONDS)

    def _look_until_closed(self, connection: socket.socket) -> None:
        while not select.select([connection], [], [], _LOOK_SECONDS)[0]:
            page = self._page() if self.is_there else None
            self._attendance.hear(None if page is None else _alive_on(page))
        connection.recv(1)

    def _page(self) -> str | None:
        """The status page of the lighthouse. Who it hears stands nowhere else."""
        try:
            with urllib.request.urlopen(f"{self._address}/status", timeout=_PAGE_SECONDS) as page:
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
        _probe(connection)
        return connection


def _alive_on(page: str) -> dict[str, float]:
    heard = _HEARTBEAT.findall(page)
    return {name: float(silence.rstrip("s") or 0.0) for old, name, silence in heard if not old}


def _probe(connection: socket.socket) -> None:
    """Have the kernel ask over an idle connection whether the other host is still there.

    One that is lost closes nothing. Without an answer the connection breaks after five seconds,
    in place of two hours.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
