"""HTTP server of a controller: its socket, its process, its end, and signals that end it."""

from __future__ import annotations

import contextlib
import gc
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from autoscaler.domain.errors import Conflict
from autoscaler.state_directory import port_before
from autoscaler.tls import TlsFiles

# Allocations between two collections of new objects, and collections of each generation between
# two of the next one. Python's own settings look at all objects after some 70,000 allocations.
_COLLECTIONS: Final = (50_000, 20, 50)
# Longer than clients keep idle connections, so that none is closed as a request begins.
_KEEP_ALIVE_SECONDS: Final = 30


class HttpServer(uvicorn.Server):
    """An HTTP server that ends long polls before it waits for open requests.

    It speaks HTTPS with `tls`. It waits at most `end_seconds` for open requests; None: no limit.
    `on_end` is called first, with the name of the signal that ends the server; None without one.
    """

    def __init__(
        self,
        app: ASGIApp,
        end_polls: Callable[[], None],
        tls: TlsFiles | None,
        end_seconds: int | None,
        on_end: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,  # its lines have the form of all others
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=end_seconds,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            ssl_certfile=None if tls is None else tls.certificate,
            ssl_keyfile=None if tls is None else tls.key,
        )
        super().__init__(config)
        self._end_polls = end_polls
        self._on_end = on_end
        self._signal: str | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note the signal that ends the server; a second Ctrl-C waits for no open request."""
        self._signal = signal.Signals(sig).name
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer all open requests and close the connections."""
        self._on_end(self._signal)
        self._end_polls()
        await super().shutdown(sockets)


@contextlib.contextmanager
def postponed_sigterm() -> Iterator[Callable[[], bool]]:
    """Let a SIGTERM end this process only after the context, without the interpreter's end.

    uvicorn sends itself the signal again once the server has ended, before the store is closed.
    The function in the context returns whether a SIGTERM has come, such as one before uvicorn.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        yield lambda: bool(received)
    finally:
        signal.signal(signal.SIGTERM, before)
        if received:
            signal.raise_signal(signal.SIGTERM)


def permit_connections() -> None:
    """Let this process have as many open files as its hard limit permits.

    Each agent keeps a connection, and the soft limit is often 1,024.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # the system permits fewer
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def collect_rarely() -> None:
    """Let the garbage collector look at the objects that exist now never, at later ones rarely.

    A look at all jobs and instances of a large fleet holds all threads up for 0.1 s and more
    (docs/scale.md).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTIONS)


@contextlib.contextmanager
def bound_socket(state: Path, host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket bound to an address; port 0 stands for the port before, or for a free one.

    Raises:
        Conflict: the address can't be bound.
    """
    # asyncio disables Nagle's algorithm, which delays answers by 40 ms, only for IPPROTO_TCP.
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        former_port = port_before(state) if port == 0 else None
        try:
            listener.bind((host, former_port or port))
        except OSError as error:
            raise Conflict(
                f"{host}:{former_port or port} can't be listened on ({error.strerror}): "
                "choose another --port"
            ) from None
        yield listener
