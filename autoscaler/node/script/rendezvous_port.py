"""Port that the leader of a gang keeps free for the rendezvous of the gang's next start."""

from __future__ import annotations

import socket


class RendezvousPort:
    """Reservation of one port of the instance's own address, until the script starts."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._reserved: socket.socket | None = None

    @property
    def address(self) -> str | None:
        """`host:port` of the reserved port; None without one."""
        return None if self._reserved is None else self._address(self._reserved)

    def reserve(self) -> None:
        """Reserve a free port, unless one is reserved.

        Raises:
            OSError: the address is not this machine's, or no port is free.
        """
        if self._reserved is None:
            reserved = socket.socket()
            try:
                reserved.bind((self._host, 0))
            except OSError:
                reserved.close()
                raise
            self._reserved = reserved

    def release(self) -> None:
        """Free the port for the launcher, or because the instance leads no gang any more."""
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def _address(self, reserved: socket.socket) -> str:
        return f"{self._host}:{reserved.getsockname()[1]}"
