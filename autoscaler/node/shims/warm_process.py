"""Agent's side of a warm shim, which runs trials one after the other."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from autoscaler.domain.training import JOB_VARIABLE
from autoscaler.node.shims.shim import ShimOrder
from autoscaler.node.shims.warm_shim import send_order

# Variables that name the job, and may differ between the trials of one warm process.
_NAMES_OF_JOB: Final = frozenset({JOB_VARIABLE, "USER", "LOGNAME"})


class WarmProcess:
    """Warm shim, which starts orders like its first order without repeating their imports.

    The shim ends with this process, after a running trial.
    """

    def __init__(
        self, like: ShimOrder, environment: Mapping[str, str], on_end: Callable[[], None]
    ) -> None:
        """Start the shim in `environment`. `on_end` is called after each order.

        Raises:
            OSError: the shim can't be started.
        """
        self._first_order = _fixed_part(like)
        self._line, end = socket.socketpair()
        with end:
            self.shim = subprocess.Popen(
                [sys.executable, "-P", "-m", "autoscaler.node.shims.warm_shim", str(end.fileno())],
                pass_fds=(end.fileno(),),
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        threading.Thread(
            target=self._listen, args=(on_end,), name="castor-warm", daemon=True
        ).start()

    def fits(self, order: ShimOrder) -> bool:
        """Return whether the shim is running and was started for orders like this one."""
        return self.shim.poll() is None and _fixed_part(order) == self._first_order

    def begin(self, order: ShimOrder, record: int, log: int) -> bool:
        """Send an order to the shim; return False if the shim is gone."""
        try:
            send_order(self._line, order, record, log)
        except OSError:
            return False
        return True

    def end(self) -> None:
        """Close the connection, so that the shim ends."""
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)

    def _listen(self, on_end: Callable[[], None]) -> None:
        with suppress(OSError):
            while self._line.recv(1):
                on_end()
        self.shim.wait()
        self._line.close()
        on_end()


def _fixed_part(order: ShimOrder) -> ShimOrder:
    """Return the part of an order that can't change once the process runs."""
    variables = {
        name: value for name, value in order.environment.items() if name not in _NAMES_OF_JOB
    }
    return replace(order, directory="", environment=variables, command=tuple(order.command))
