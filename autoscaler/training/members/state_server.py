"""Server of a replica's state for the replicas that are behind.

Torchft's own transport serves the state to anyone who can reach the port and loads it as a
pickle. This server listens on one address and requires the job's token.

A request is a line of JSON; a connection may send many. A receiver's first request is for the
description of the state. It then requests ranges of its bytes, over several connections and from
several replicas, in any order (see `fetching`). A range is followed by one byte: whether the state
was still served when the range's last byte was read, so that the range is consistent.
"""

from __future__ import annotations

import hmac
import json
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any, Final

from autoscaler.training.state.packed import ByteSequence
from autoscaler.training.state.reception import describe, tensors_of

_AWAIT_STATE_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 60.0
_MAX_LINE_BYTES: Final = 4096
SERVED: Final = b"\x01"
REFUSED: Final = b"\x00"
LENGTH_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class StateRequest:
    """Request for bytes `begin` to `end` of the state `key`; for its description if `end` is 0."""

    key: str
    token: str
    begin: int = 0
    end: int = 0

    def to_line(self) -> bytes:
        """Return the request as a line of JSON."""
        values = {"key": self.key, "token": self.token, "begin": self.begin, "end": self.end}
        return json.dumps(values).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class _ServedState:
    """State that is being served."""

    key: str
    description: bytes
    packed: ByteSequence


class StateServer:
    """Server of one state at a time, from `serve` to `stop`.

    The state is passed by reference: it must not change before `stop`.
    """

    def __init__(self, bind_address: str, token: str) -> None:
        self._token = token
        self._served: _ServedState | None = None
        self._stopped_key = ""
        self._changed = threading.Condition()
        self._server = _Server((bind_address, 0), _handler(self))
        self.address = f"{bind_address}:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, name="castor-state", daemon=True
        ).start()

    def expect(self) -> None:
        """Let receivers wait for a state that `serve` may provide, instead of refusing them."""
        with self._changed:
            self._stopped_key = ""

    def serve(self, key: str, state: Any) -> None:
        """Serve `state`, a tree of tensors and plain values, under the name `key`."""
        served = _ServedState(key, describe(state).to_bytes(), ByteSequence(tensors_of(state)))
        with self._changed:
            self._served = served
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop serving the state, and mark ranges that are being sent as invalid."""
        with self._changed:
            self._stopped_key = self._served.key if self._served is not None else self._stopped_key
            self._served = None
            self._changed.notify_all()

    def close(self) -> None:
        """Stop serving and close the port."""
        self.stop()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, connection: socket.socket) -> None:
        """Answer the requests of one connection until its end."""
        connection.settimeout(_IDLE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        staging = None
        with (
            suppress(OSError, ValueError, LookupError, TypeError),
            connection.makefile("rb") as lines,
        ):
            while line := lines.readline(_MAX_LINE_BYTES):
                request = self._parse_request(line)
                served = self._state_of(request.key) if request is not None else None
                if request is None or served is None:
                    connection.sendall(REFUSED)
                    return
                connection.sendall(SERVED)
                if request.end == 0:
                    length = len(served.description).to_bytes(LENGTH_BYTES, "big")
                    connection.sendall(length + served.description)
                    continue
                staging = staging or served.packed.staging()
                connection.sendall(served.packed.read(request.begin, request.end, staging))
                connection.sendall(SERVED if self._served is served else REFUSED)

    def _parse_request(self, line: bytes) -> StateRequest | None:
        """Return the request in a line; None if its token is wrong."""
        request = StateRequest(**json.loads(line))
        shows_token = hmac.compare_digest(str(request.token).encode(), self._token.encode())
        return request if shows_token else None

    def _state_of(self, key: str) -> _ServedState | None:
        """Return the state of that name, waiting a moment for `serve`; None if not served."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._served is not None or self._stopped_key == key, _AWAIT_STATE_SECONDS
            )
            served = self._served
        return served if served is not None and served.key == key else None


class _Server(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64


def _handler(server: StateServer) -> type[BaseRequestHandler]:
    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            server.answer(self.request)

    return Handler
