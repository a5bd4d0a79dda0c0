"""A shim for one trial after the other, whose workers are forked from a process that is warm.

Started as ``python -P -m autoscaler.node.warm_shim LINE``, a descriptor of a stream socket to the
agent. Each order comes as a line of JSON, with the descriptors of record and log before it; when
all of it has ended, the agent hears a byte. The command of the first order is started once, to
stay: on its standard input, a socket, it is told environment and directory of each worker, and
answers with the process that it has forked. That is this shim's child as soon as its parent, which
was for that only, has ended. When the agent hangs up or dies, a trial that runs goes on to its
end, and with it ends the rest.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace

from autoscaler.clock import Clock, SystemClock
from autoscaler.domain.trial import AHEAD_VARIABLE
from autoscaler.node.redaction import Redactor
from autoscaler.node.shim import PR_SET_CHILD_SUBREAPER, Order, Shim, children

_CHUNK_BYTES = 1 << 16


class WarmShim(Shim):
    """A shim that stays. `line` leads to the agent; the first order is on it."""

    def __init__(self, line: socket.socket, clock: Clock) -> None:
        order, record, log = receive_order(line)
        super().__init__(order, record, log, clock)
        os.set_blocking(self._output, False)
        self._line = line
        self._told, end = socket.socketpair()
        ahead = replace(order, environment={**order.environment, AHEAD_VARIABLE: "1"})
        with end:
            self._stays = self._start(ahead, stdin=end.fileno())
        os.close(self._input)

    def run(self) -> None:
        """See one order through after the other."""
        while True:
            self._see_order_through()
            if self._stays is None or not self._is_ordered():
                break
            self._order, self._record, self._log = receive_order(self._line)
            self._redactor, self._granted = Redactor(self._order.secrets), None
            self._exit_code = self._kill_seconds = None
        self._stays = None
        self._send(signal.SIGKILL)

    def _see_order_through(self) -> None:
        os.write(self._record, f"{os.getpid()}\n".encode())
        command = None if self._stays is None else self._fork()
        while self._has_children(command):
            self._serve()
        self._drain()
        self._write(self._redactor.finish())
        os.write(self._record, f"{self._exit_code}\n".encode())
        os.close(self._record)
        os.close(self._log)
        with suppress(OSError):
            self._line.send(b"\n")

    def _fork(self) -> int | None:
        """The process of the command, from the one that stays; None if that has ended."""
        order = self._order
        told = {"environment": dict(order.environment), "directory": order.directory}
        with suppress(OSError):
            self._told.sendall(json.dumps(told).encode() + b"\n")
            if answer := self._told.recv(_CHUNK_BYTES):
                return int(answer)
        return None

    def _has_children(self, command: int | None) -> bool:
        while True:
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if ended == 0:
                break
            is_command = ended == command or (command is None and ended == self._stays)
            if ended == self._stays:
                self._stays = None
            if is_command:
                self._exit_code = os.waitstatus_to_exitcode(status)
                self._end()
        others = set(children(os.getpid())) - {self._stays}
        return bool(others) or (self._exit_code is None and self._stays is not None)

    def _is_ordered(self) -> bool:
        """Wait for the next order; False if there will be none."""
        watched: list[socket.socket | int] = [self._line, self._woken]
        while self._stays is not None:
            ready = select.select(watched, [], [])[0]
            if self._woken in ready:
                os.read(self._woken, _CHUNK_BYTES)
                self._has_children(None)
            if self._line in ready:
                return self._line.recv(1, socket.MSG_PEEK) != b""
        return False

    def _drain(self) -> None:
        """What was printed and is still on its way."""
        with suppress(BlockingIOError):
            while chunk := os.read(self._output, _CHUNK_BYTES):
                self._take(chunk)


def send_order(line: socket.socket, order: Order, record: int, log: int) -> None:
    """Order something. The other end has descriptors of its own then, with the locks on them."""
    socket.send_fds(line, [b"\n"], [record, log])
    line.sendall(json.dumps(asdict(order)).encode() + b"\n")


def receive_order(line: socket.socket) -> tuple[Order, int, int]:
    """The next order on the line, with its record and log.

    Raises:
        EOFError: whoever was to give it is gone.
    """
    _, descriptors, _, _ = socket.recv_fds(line, 1, 2)
    text = bytearray()
    while not text.endswith(b"\n"):
        chunk = line.recv(_CHUNK_BYTES)
        if not chunk:
            raise EOFError
        text += chunk
    record, log = descriptors
    fields: Mapping[str, object] = json.loads(text)
    return Order(**fields), record, log  # type: ignore[arg-type]


def main() -> None:
    """Run what the line orders."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with suppress(EOFError):  # the agent died before it had ordered all
        WarmShim(socket.socket(fileno=int(sys.argv[1])), SystemClock()).run()


if __name__ == "__main__":
    main()
