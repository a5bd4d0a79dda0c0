"""Connection of a member to its job's roster, with heartbeats and requests for orders.

The roster sends the names of the present replicas at each change, which `attendance` records.
"""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from urllib.parse import urlsplit

from autoscaler.domain.roster import Ask, MemberHeartbeat, QuorumReply, answer_from, line_of
from autoscaler.training.members.attendance import Attendance

_CONNECT_SECONDS = 5.0
_RETRY_SECONDS = 0.1
_SILENCE_MILLISECONDS = 5000


@dataclass(frozen=True, slots=True)
class _Connection:
    """Connection, and the orders received over it; None marks its end."""

    socket: socket.socket
    orders: SimpleQueue[QuorumReply | None] = field(default_factory=SimpleQueue)


class RosterLine:
    """Connection to the server at `address`, re-established from `open` to `close`.

    One thread sends heartbeats and another one reads. Only one further thread may call `ask`.
    """

    def __init__(
        self, address: str, sign: MemberHeartbeat, interval_seconds: float, attendance: Attendance
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
        self._thread = threading.Thread(
            target=self._heartbeat_loop, name="castor-roster", daemon=True
        )

    @property
    def is_there(self) -> bool:
        """Whether the server can be reached."""
        return self._connection is not None

    def open(self) -> None:
        """Register as a member that others wait for; do nothing if registered already."""
        if self._thread.ident is None:
            self.connect()
            self._thread.start()

    def connect(self) -> bool:
        """Connect to the server unless connected; return whether the server can be reached."""
        with self._connecting:
            if self._connection is None and not self._closed.is_set():
                self._connection = connection = self._new_connection()
                if connection is not None:
                    threading.Thread(
                        target=self._receive_loop,
                        args=(connection,),
                        name="castor-roster-in",
                        daemon=True,
                    ).start()
            return self._connection is not None

    def ask(self, ask: Ask) -> QuorumReply | None:
        """Return the order that answers `ask`. Blocks; None if the server can't be reached."""
        connection = self._connection
        call = MemberHeartbeat(self._sign.name, self._sign.store, ask)
        if connection is None or not self._send(connection, call):
            return None
        return connection.orders.get()

    def close(self) -> None:
        """Deregister as a member and close the connection."""
        self._closed.set()
        if self._connection is not None:
            self._disconnect(self._connection)

    def _heartbeat_loop(self) -> None:
        while not self._closed.is_set():
            connection = self._connection
            if connection is not None and self._send(connection, self._sign):
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
        if sys.platform == "linux":  # otherwise a lost host would be awaited
            option = socket.TCP_USER_TIMEOUT
            connection.setsockopt(socket.IPPROTO_TCP, option, _SILENCE_MILLISECONDS)
        return _Connection(connection)

    def _receive_loop(self, connection: _Connection) -> None:
        with (
            suppress(OSError, ValueError, KeyError, TypeError),
            connection.socket.makefile("rb") as lines,
        ):
            for line in lines:
                answer = answer_from(line)
                if isinstance(answer, QuorumReply):
                    connection.orders.put(answer)
                elif self._connection is connection:
                    self._attendance.hear(answer.names)
        self._disconnect(connection)
        connection.orders.put(None)

    def _send(self, connection: _Connection, call: MemberHeartbeat) -> bool:
        try:
            with self._sending:
                connection.socket.sendall(line_of(call))
        except OSError:
            self._disconnect(connection)
            return False
        return True

    def _disconnect(self, connection: _Connection) -> None:
        if self._connection is connection:
            self._connection = None
            self._attendance.hear(None)
        with suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)
        connection.socket.close()
