"""A member's connection to its job's roster: signs of life always, an ask now and then.

The roster says at each change who is there; `attendance` hears that.
"""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from urllib.parse import urlsplit

from autoscaler.domain.roster import Ask, Call, Order, answer_from, line_of
from autoscaler.training.members.attendance import Attendance

_CONNECT_SECONDS = 5.0
_RETRY_SECONDS = 0.1
_SILENCE_MILLISECONDS = 5000


@dataclass(frozen=True, slots=True)
class _Connection:
    """One connection, and the orders that have come by it; None at its end."""

    socket: socket.socket
    orders: SimpleQueue[Order | None] = field(default_factory=SimpleQueue)


class RosterLine:
    """Connects to the server at `address`, again and again, from `open` to `close`.

    One thread sends the signs of life, another one reads; only one further thread may ask.
    """

    def __init__(
        self, address: str, sign: Call, interval_seconds: float, attendance: Attendance
    ) -> None:
        parts = urlsplit(address)
        self._endpoint = (parts.hostname or "", parts.port or 0)
        self._sign = sign
        self._interval_seconds = interval_seconds
        self._attendance = attendance
        self._connecting = threading.Lock()
        self._sending = threading.Lock()
        self._closed = threading.Event()
        self._connection: _Connection | None = None
        self._thread = threading.Thread(target=self._keep, name="castor-roster", daemon=True)

    @property
    def is_there(self) -> bool:
        """The server can be reached."""
        return self._connection is not None

    def open(self) -> None:
        """Be a member for whom the others wait, from now on. Nothing if that is so already."""
        if self._thread.ident is None:
            self.connect()
            self._thread.start()

    def connect(self) -> bool:
        """Whether the server can be reached, which is tried now if the connection is lost."""
        with self._connecting:
            if self._connection is None and not self._closed.is_set():
                self._connection = opened = self._new_connection()
                if opened is not None:
                    threading.Thread(
                        target=self._read, args=(opened,), name="castor-roster-in", daemon=True
                    ).start()
            return self._connection is not None

    def ask(self, ask: Ask) -> Order | None:
        """The order that answers `ask`. Blocks; None if the server is away, or goes away."""
        connection = self._connection
        call = Call(self._sign.name, self._sign.store, ask)
        if connection is None or not self._say(connection, call):
            return None
        return connection.orders.get()

    def close(self) -> None:
        """Be a member no more."""
        self._closed.set()
        if self._connection is not None:
            self._hang_up(self._connection)

    def _keep(self) -> None:
        while not self._closed.is_set():
            connection = self._connection
            if connection is not None and self._say(connection, self._sign):
                self._closed.wait(self._interval_seconds)
            elif not self.connect():
                self._closed.wait(_RETRY_SECONDS)

    def _new_connection(self) -> _Connection | None:
        try:
            connection = socket.create_connection(self._endpoint, timeout=_CONNECT_SECONDS)
        except OSError:
            return None
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform == "linux":  # or a server whose machine is gone would be waited for
            option = socket.TCP_USER_TIMEOUT
            connection.setsockopt(socket.IPPROTO_TCP, option, _SILENCE_MILLISECONDS)
        return _Connection(connection)

    def _read(self, connection: _Connection) -> None:
        with (
            suppress(OSError, ValueError, KeyError, TypeError),
            connection.socket.makefile("rb") as lines,
        ):
            for line in lines:
                answer = answer_from(line)
                if isinstance(answer, Order):
                    connection.orders.put(answer)
                elif self._connection is connection:
                    self._attendance.hear(answer.names)
        self._hang_up(connection)
        connection.orders.put(None)

    def _say(self, connection: _Connection, call: Call) -> bool:
        try:
            with self._sending:
                connection.socket.sendall(line_of(call))
        except OSError:
            self._hang_up(connection)
            return False
        return True

    def _hang_up(self, connection: _Connection) -> None:
        if self._connection is connection:
            self._connection = None
            self._attendance.hear(None)
        with suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)
        connection.socket.close()
