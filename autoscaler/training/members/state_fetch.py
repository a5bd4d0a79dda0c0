"""Transfer of the state to a replica that is behind, from all replicas that have it.

Several connections, spread over the sources, take ranges of the state's bytes from one list. The
next connection takes a range that a broken one left unfinished, from any source. A transfer is
bounded by the time without a byte, not by its duration.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from autoscaler.clock import Clock
from autoscaler.training.members.state_server import LENGTH_BYTES, SERVED, StateRequest
from autoscaler.training.state.packed import ByteSequence, Staging
from autoscaler.training.state.reception import Description, StateBuffer, description_from

_log = logging.getLogger(__name__)

_CONNECTIONS: Final = 8
_CONNECT_SECONDS: Final = 3.0
# Seconds without a byte until a connection is given up; a transfer is given up later.
_SILENCE_SECONDS: Final = 3.0
STALL_SECONDS: Final = 8.0
_RETRY_SECONDS: Final = 0.2
_POLL_SECONDS: Final = 0.02


class StalledError(RuntimeError):
    """Error of a transfer without a byte for `STALL_SECONDS`."""


class RefusedError(RuntimeError):
    """Error of a transfer whose state is no longer served by any source."""


class Fetch:
    """Transfer of one state, named `key`; a further `run` resumes where the last one stopped.

    `prepare` returns the memory for a described state.
    """

    def __init__(
        self,
        key: str,
        token: str,
        prepare: Callable[[Description], StateBuffer],
        clock: Clock,
    ) -> None:
        self.key = key
        self._token = token
        self._prepare = prepare
        self._clock = clock
        self._reception: StateBuffer | None = None
        self._packed = ByteSequence(())
        self._pending_ranges: deque[tuple[int, int]] = deque()
        self._ranges_left = 0
        self._sources: list[str] = []
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._fault: Exception | None = None
        self.received_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Size of the state's tensors in bytes; 0 before it is known."""
        return self._packed.size_bytes

    def complete(self) -> Any:
        """Return the state; requires a run that succeeded."""
        assert self._reception is not None and self._ranges_left == 0
        return self._reception.complete()

    def run(self, sources: Sequence[str], cancelled: threading.Event) -> None:
        """Receive all missing ranges from the replicas at these addresses. Blocks.

        Raises:
            StalledError: no byte arrives for `STALL_SECONDS`.
            RefusedError: no source has this state any more, or the run is `cancelled`.
            MismatchError: it is the state of another model.
        """
        self._cancelled, self._fault = cancelled, None
        self._sources = list(sources)
        if self._reception is None:
            description = self._describe()
            self._reception = self._prepare(description)
            self._packed = ByteSequence(self._reception.tensors)
            self._pending_ranges.extend(self._packed.blocks())
            self._ranges_left = len(self._pending_ranges)
        count = min(_CONNECTIONS, self._ranges_left)
        threads = [
            threading.Thread(target=self._receive_or_fail, args=(number,), daemon=True)
            for number in range(count)
        ]
        for thread in threads:
            thread.start()
        try:
            self._wait_until_received()
        finally:
            cancelled.set()
            self.break_connections()
            for thread in threads:
                thread.join()

    def break_connections(self) -> None:
        """Shut down all connections, so that no thread waits for bytes."""
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _wait_until_received(self) -> None:
        """Wait until the receiving threads have all ranges.

        Raises:
            Exception: any error of a receiving thread, or those of `run`.
        """
        received_bytes, since_seconds = -1, 0.0
        while self._ranges_left > 0:
            now_seconds = self._clock.monotonic()
            if self._fault is not None:
                raise self._fault
            if self._cancelled.is_set() or not self._sources:
                raise RefusedError("no member serves the state any more")
            if self.received_bytes != received_bytes:
                received_bytes, since_seconds = self.received_bytes, now_seconds
            elif now_seconds - since_seconds > STALL_SECONDS:
                raise StalledError(
                    f"no byte for {STALL_SECONDS:g} s, after {received_bytes:,} of "
                    f"{self.size_bytes:,}: check the network between the instances"
                )
            self._clock.sleep(_POLL_SECONDS)

    def _describe(self) -> Description:
        until_seconds = self._clock.monotonic() + STALL_SECONDS
        while self._sources and not self._cancelled.is_set():
            for source in tuple(self._sources):
                try:
                    with self._connect(source) as connection:
                        self._request(connection, source)
                        length = int.from_bytes(self._read_bytes(connection, LENGTH_BYTES), "big")
                        return description_from(self._read_bytes(connection, length))
                except OSError as error:
                    _log.debug("%s does not describe the state: %s", source, error)
            if self._clock.monotonic() > until_seconds:
                raise StalledError(
                    f"none of {', '.join(self._sources)} answers within {STALL_SECONDS:g} s: "
                    "check the network between the instances"
                )
            self._clock.sleep(_RETRY_SECONDS)
        raise RefusedError("no member serves the state any more")

    def _receive_or_fail(self, number: int) -> None:
        try:
            self._receive(number)
        except Exception as error:
            self._fault = error

    def _receive(self, number: int) -> None:
        """Receive ranges from the list until none is left, from one source after another."""
        staging = self._packed.staging()
        while self._ranges_left > 0 and not self._cancelled.is_set():
            sources = self._sources
            if not sources:
                return
            source = sources[number % len(sources)]
            number += 1
            with suppress(OSError), self._connect(source) as connection:
                while self._ranges_left > 0 and not self._cancelled.is_set():
                    self._receive_range(connection, source, staging)
            if self._ranges_left > 0:
                self._clock.sleep(_RETRY_SECONDS)

    def _receive_range(self, connection: socket.socket, source: str, staging: Staging) -> None:
        try:
            begin, end = self._pending_ranges.popleft()
        except IndexError:  # other connections receive the last ranges
            self._clock.sleep(_POLL_SECONDS)
            return
        try:
            self._request(connection, source, begin, end)
            self._fill(connection, self._packed.room(begin, end, staging))
            if self._read_bytes(connection, 1) != SERVED:
                self._drop_source(source)
                raise ConnectionAbortedError(f"{source} has changed its state")
            self._packed.place(begin, end, staging)
        except BaseException:
            self._pending_ranges.append((begin, end))
            raise
        with self._lock:
            self._ranges_left -= 1

    def _request(
        self, connection: socket.socket, source: str, begin: int = 0, end: int = 0
    ) -> None:
        connection.sendall(StateRequest(self.key, self._token, begin, end).to_line())
        if self._read_bytes(connection, 1) != SERVED:
            self._drop_source(source)
            raise ConnectionRefusedError(f"{source} does not serve this state")

    def _drop_source(self, source: str) -> None:
        self._sources = [other for other in self._sources if other != source]

    def _read_bytes(self, connection: socket.socket, count: int) -> bytes:
        content = bytearray(count)
        self._fill(connection, memoryview(content))
        return bytes(content)

    def _fill(self, connection: socket.socket, memory: memoryview) -> None:
        filled = 0
        while filled < len(memory):
            count = connection.recv_into(memory[filled:])
            if count == 0:
                raise ConnectionResetError("the connection has ended")
            filled += count
            self.received_bytes += count

    @contextmanager
    def _connect(self, source: str) -> Iterator[socket.socket]:
        host, _, port = source.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS) as connection:
            connection.settimeout(_SILENCE_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._connections.add(connection)
            try:
                yield connection
            finally:
                with self._lock:
                    self._connections.discard(connection)
