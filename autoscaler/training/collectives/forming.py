"""The forming of a world, which is given up early where a member is gone.

Torch waits for the members of a new process group, and for the host of a store, up to a timeout,
and can't be told to stop. So the forming is done on a thread of its own, which is left behind.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Final

import torch

from autoscaler.clock import Clock
from autoscaler.training.collectives.world import World

_LOOK_SECONDS: Final = 0.05
# Each probe is one more connection to the store, so that it is made late and seldom.
_PROBE_SECONDS: Final = 1.0
_REACH_SECONDS: Final = 0.5


def formed(
    form: Callable[[], World], store: str, has_lost_member: Callable[[], bool], clock: Clock
) -> World:
    """Return the world that `form` returns.

    A world that forms after it was given up is abandoned at once.

    Args:
        form: blocks until all members have come.
        store: the address at which they meet.
        has_lost_member: whether one of them is missed.
        clock: of the intervals at which is looked.

    Raises:
        RuntimeError: the forming fails, a member is lost, or nobody listens at `store` any more.
    """
    attempt = _Attempt(form)
    probe_at_seconds = clock.monotonic() + _PROBE_SECONDS
    while not attempt.ended.wait(_LOOK_SECONDS):
        is_lost = has_lost_member()
        if clock.monotonic() >= probe_at_seconds:
            is_lost = is_lost or _is_refused(store)
            probe_at_seconds = clock.monotonic() + _PROBE_SECONDS
        if is_lost and attempt.give_up():
            raise RuntimeError("a member was lost before its world had formed")
    return attempt.result()


class _Attempt:
    """One forming, on a thread; `ended` is set at its end."""

    def __init__(self, form: Callable[[], World]) -> None:
        self._form = form
        self._world: World | None = None
        self._error: Exception | None = None
        self._is_given_up = False
        self._deciding = threading.Lock()
        is_on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._device = torch.cuda.current_device() if is_on_gpu else None
        self.ended = threading.Event()
        threading.Thread(target=self._run, name="castor-forming", daemon=True).start()

    def give_up(self) -> bool:
        """Return whether the attempt is given up; False if it has just ended."""
        with self._deciding:
            self._is_given_up = not self.ended.is_set()
            return self._is_given_up

    def result(self) -> World:
        """Return the world, once the attempt has ended.

        Raises:
            Exception: what the forming raised.
        """
        if self._world is None:
            raise self._error or RuntimeError("the world has not formed")
        return self._world

    def _run(self) -> None:
        if self._device is not None:
            torch.cuda.set_device(self._device)  # a thread begins with the first device
        try:
            self._world = self._form()
        except Exception as error:
            self._error = error
        with self._deciding:
            self.ended.set()
            is_late = self._is_given_up
        if is_late and self._world is not None:
            self._world.abandon()


def _is_refused(address: str) -> bool:
    """Return whether the host of an address says that nobody listens there."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _REACH_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
