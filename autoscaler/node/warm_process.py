"""Trials one after the other under a shim that stays, from the agent's side."""

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
from autoscaler.node.shim import Order
from autoscaler.node.warm_shim import send_order

# What only names the job, and is read when it is asked for.
_NAMES_OF_JOB: Final = frozenset({JOB_VARIABLE, "USER", "LOGNAME"})


class WarmProcess:
    """A shim that begins orders like its first one without their imports.

    It ends with this process, but for a trial that runs.
    """

    def __init__(
        self, like: Order, environment: Mapping[str, str], on_end: Callable[[], None]
    ) -> None:
        """Start the shim, whose `environment` that is. `on_end` is called after each order.

        Raises:
            OSError: it can't be started.
        """
        self._like = _fixed(like)
        self._line, end = socket.socketpair()
        with end:
            self.shim = subprocess.Popen(
                [sys.executable, "-P", "-m", "autoscaler.node.warm_shim", str(end.fileno())],
                pass_fds=(end.fileno(),),
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        threading.Thread(
            target=self._listen, args=(on_end,), name="castor-warm", daemon=True
        ).start()

    def fits(self, order: Order) -> bool:
        """Whether it is there, and was started as this order would have it started."""
        return self.shim.poll() is None and _fixed(order) == self._like

    def begin(self, order: Order, record: int, log: int) -> bool:
        """Have it do what is ordered; False if it is gone."""
        try:
            send_order(self._line, order, record, log)
        except OSError:
            return False
        return True

    def end(self) -> None:
        """Have no use for it."""
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)

    def _listen(self, on_end: Callable[[], None]) -> None:
        with suppress(OSError):
            while self._line.recv(1):
                on_end()
        self.shim.wait()
        self._line.close()
        on_end()


def _fixed(order: Order) -> Order:
    """What can't be changed any more once the process runs."""
    variables = {
        name: value for name, value in order.environment.items() if name not in _NAMES_OF_JOB
    }
    return replace(order, directory="", environment=variables, command=tuple(order.command))
