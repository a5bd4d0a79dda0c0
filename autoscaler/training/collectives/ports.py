"""Ports that are open on one address only; torch's default is every interface."""

from __future__ import annotations

import os
import socket
from typing import Final

import psutil
from torch._C._distributed_c10d import TCPStore

_CONNECT_SECONDS: Final = 0.5


def bound_store(address: str, port: int = 0) -> tuple[TCPStore, int]:
    """Return a store that listens on `address` only, and its port; `port` 0 is any free one."""
    listener = socket.socket()
    if port:  # connections of the process that had reserved the port may linger
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(128)
    port = int(listener.getsockname()[1])
    store = TCPStore(
        address,
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
        use_libuv=True,
    )
    return store, port


def use_interface_of(address: str) -> None:
    """Make gloo and NCCL listen on the interface that has `address`."""
    for interface, addresses in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in addresses):
            os.environ["GLOO_SOCKET_IFNAME"] = interface
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)


def reach(address: str) -> None:
    """Connect to `host:port` and disconnect.

    Raises:
        OSError: it can't be reached; ConnectionRefusedError if no process listens there.
    """
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
