"""Shim for trials one after the other, whose workers are forked from a warm process.

The agent starts ``python -P -m autoscaler.node.shims.warm_shim LINE``, where LINE is the
descriptor of a stream socket to the agent. Each order is a line of JSON, after the descriptors of
record and log. When all processes of an order have ended, the shim sends the agent a byte.

The command of the first order starts once, as a fork server. Its standard input is a socket, on
which it gets the environment and directory of each worker, and answers with the worker's process
id. A worker becomes a child of this shim when its short-lived parent ends. When the agent closes
the line or dies, a running trial continues to its end; then the fork server and the shim end.
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
from autoscaler.node.shims.redaction import Redactor
from autoscaler.node.shims.shim import PR_SET_CHILD_SUBREAPER, Shim, ShimOrder, children

_CHUNK_BYTES = 1 << 16


class WarmShim(Shim):
    """Shim that runs several orders. `line` leads to the agent and holds the first order."""

    def __init__(self, line: socket.socket, clock: Clock) -> None:
        order, record, log = receive_order(line)
        super().__init__(order, record, log, clock)
        os.set_blocking(self._output, False)
        self._line = line
        self._fork_line, end = socket.socketpair()
        ahead = replace(order, environment={**order.environment, AHEAD_VARIABLE: "1"})
        with end:
            self._fork_server = self._start(ahead, stdin=end.fileno())
        os.close(self._input)

    def run(self) -> None:
        """Run orders one after the other, until the agent is gone."""
        while True:
            self._run_order()
            if self._fork_server is None or not self._wait_for_order():
                break
            self._order, self._record, self._log = receive_order(self._line)
            self._redactor, self._grant_version = Redactor(self._order.secrets), None
            self._exit_code = self._kill_seconds = None
        self._fork_server = None
        self._signal_all(signal.SIGKILL)

    def _run_order(self) -> None:
        os.write(self._record, f"{os.getpid()}\n".encode())
        command = None if self._fork_server is None else self._fork()
        while self._reap(command):
            self._wait_for_event()
        self._log_remaining_output()
        self._write(self._redactor.finish())
        os.write(self._record, f"{self._exit_code}\n".encode())
        os.close(self._record)
        os.close(self._log)
        with suppress(OSError):
            self._line.send(b"\n")

    def _fork(self) -> int | None:
        """Fork a worker and return its process id; None if the fork server has ended."""
        order = self._order
        request = {"environment": dict(order.environment), "directory": order.directory}
        with suppress(OSError):
            self._fork_line.sendall(json.dumps(request).encode() + b"\n")
            if answer := self._fork_line.recv(_CHUNK_BYTES):
                return int(answer)
        return None

    def _reap(self, command: int | None) -> bool:
        while True:
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if ended == 0:
                break
            is_command = ended == command or (command is None and ended == self._fork_server)
            if ended == self._fork_server:
                self._fork_server = None
            if is_command:
                self._exit_code = os.waitstatus_to_exitcode(status)
                self._terminate()
        others = set(children(os.getpid())) - {self._fork_server}
        return bool(others) or (self._exit_code is None and self._fork_server is not None)

    def _wait_for_order(self) -> bool:
        """Wait for the next order; return False if there will be none."""
        watched: list[socket.socket | int] = [self._line, self._wakeup]
        while self._fork_server is not None:
            ready = select.select(watched, [], [])[0]
            if self._wakeup in ready:
                os.read(self._wakeup, _CHUNK_BYTES)
                self._reap(None)
            if self._line in ready:
                return self._line.recv(1, socket.MSG_PEEK) != b""
        return False

    def _log_remaining_output(self) -> None:
        """Log the output that is still in the pipe."""
        with suppress(BlockingIOError):
            while chunk := os.read(self._output, _CHUNK_BYTES):
                self._log_output(chunk)


def send_order(line: socket.socket, order: ShimOrder, record: int, log: int) -> None:
    """Send an order. The receiver gets duplicates of the descriptors, with the locks on them."""
    socket.send_fds(line, [b"\n"], [record, log])
    line.sendall(json.dumps(asdict(order)).encode() + b"\n")


def receive_order(line: socket.socket) -> tuple[ShimOrder, int, int]:
    """Return the next order on the line, with the descriptors of its record and log.

    Raises:
        EOFError: the sender is gone.
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
    return ShimOrder(**fields), record, log  # type: ignore[arg-type]


def main() -> None:
    """Run the orders that arrive on the line."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with suppress(EOFError):  # the agent died before it sent a whole order
        WarmShim(socket.socket(fileno=int(sys.argv[1])), SystemClock()).run()


if __name__ == "__main__":
    main()
