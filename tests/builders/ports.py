"""Ports that a test chooses for a process that binds them later."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 20_000
_chance: Final = random.SystemRandom()


def free_port() -> int:
    """Return a port of this machine that nobody uses now.

    It is below those that the kernel gives to connections and to servers with port 0, so that
    none of these takes it before the process of the test does.
    """
    while True:
        port = _chance.randrange(_LOWEST, _first_of_the_kernel())
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _first_of_the_kernel() -> int:
    """Return the first port that the kernel chooses itself; 49152 on other systems than Linux."""
    return int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 49_152
