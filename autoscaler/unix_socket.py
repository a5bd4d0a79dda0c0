"""Unix sockets whose path is longer than a socket address, which has at most 107 bytes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST_ADDRESS_BYTES = 103  # the limit of macOS, the shortest of the supported systems


def listen(path: Path) -> socket.socket:
    """Return a socket that listens at `path`; an existing file there is replaced."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with _address(path) as address:
        listener.bind(address)
    listener.listen()
    return listener


def connect(connection: socket.socket, path: Path) -> None:
    """Connect to the socket that listens at `path`.

    Raises:
        OSError: no socket listens there.
    """
    with _address(path) as address:
        connection.connect(address)


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield `path`, or a short alias below ``/proc/self/fd`` if `path` is too long."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS_BYTES:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
