"""Unix sockets in directories too deep for their addresses, which have at most 107 bytes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST_ADDRESS_BYTES = 103  # of macOS, the least that is about


def listen(path: Path) -> socket.socket:
    """A socket that listens at `path`, in the place of what was there."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with _address(path) as address:
        listener.bind(address)
    listener.listen()
    return listener


def connect(connection: socket.socket, path: Path) -> None:
    """Connect with what listens at `path`.

    Raises:
        OSError: nothing does.
    """
    with _address(path) as address:
        connection.connect(address)


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """A short name of `path`: by its directory's open descriptor where its own is too long."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS_BYTES:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
