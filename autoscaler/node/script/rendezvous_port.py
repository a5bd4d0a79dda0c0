"""Port that the leader of a gang keeps free for the rendezvous of the gang's next start."""

from __future__ import annotations

import socket
import sys
from typing import Final

# Other systems let no server listen at a port that another socket is bound to.
_KEEPS_PORT: Final = sys.platform == "linux"


class RendezvousPort:
    """Reservation of one port of the instance's own address.

    After it is handed over to the launcher, the agent's socket stays bound, so that no other
    program gets the port before the launcher listens there. An agent that ends in between frees
    it; so does any agent on systems other than Linux.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._reserved: socket.socket | None = None
        self._handed_over: socket.socket | None = None

    @property
    def address(self) -> str | None:
        """`host:port` of the reserved port; None without one."""
        return None if self._reserved is None else self._address(self._reserved)

    def reserve(self) -> None:
        """Reserve a free port, unless one is reserved. The one before it is freed.

        Raises:
            OSError: the address is not this machine's, or no port is free.
        """
        if self._reserved is None:
            reserved = socket.socket()
            try:
                if _KEEPS_PORT:  # both sockets need the option, so that the launcher can bind, too
                    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                reserved.bind((self._host, 0))
            except OSError:
                reserved.close()
                raise
            self._free()
            self._reserved = reserved

    def hand_over(self) -> None:
        """Let the launcher listen at the port, if one is reserved."""
        if self._reserved is not None:
            self._free()
            self._handed_over, self._reserved = self._reserved, None
            if not _KEEPS_PORT:
                self._free()

    def _free(self) -> None:
        if self._handed_over is not None:
            self._handed_over.close()
            self._handed_over = None

    def _address(self, reserved: socket.socket) -> str:
        return f"{self._host}:{reserved.getsockname()[1]}"
