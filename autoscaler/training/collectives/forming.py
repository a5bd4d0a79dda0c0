"""Forming of a world, which is given up early if a member is lost.

Torch waits for the members of a new process group, and for the host of a store, up to a timeout,
and can't be interrupted. The forming is therefore done on a separate thread, which is left behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Final

import torch

from autoscaler.clock import Clock
from autoscaler.training.collectives.ports import reach
from autoscaler.training.collectives.world import World

_POLL_SECONDS: Final = 0.05
# Seconds between probes of the store; rare, as each probe is one more connection.
_PROBE_SECONDS: Final = 1.0


def formed(
    form: Callable[[], World], store: str, has_lost_member: Callable[[], bool], clock: Clock
) -> World:
    """Return the world that `form` returns.

    A world that forms after it was given up is abandoned at once.

    Args:
        form: creates the world; blocks until all members have joined.
        store: address of the members' store.
        has_lost_member: returns whether a member is missed.
        clock: clock for the polling intervals.

    Raises:
        RuntimeError: the forming fails, a member is lost, or `store` refuses connections.
    """
    forming = _start_forming(form)
    next_probe_seconds = clock.monotonic() + _PROBE_SECONDS
    while not wait([forming], _POLL_SECONDS).done:
        is_lost = has_lost_member()
        if clock.monotonic() >= next_probe_seconds:
            is_lost = is_lost or _is_connection_refused(store)
            next_probe_seconds = clock.monotonic() + _PROBE_SECONDS
        if is_lost and not forming.done():
            forming.add_done_callback(_abandon)
            raise RuntimeError("a member was lost before its world had formed")
    return forming.result()


def _start_forming(form: Callable[[], World]) -> Future[World]:
    """Start to form a world on a daemon thread; return its future."""
    forming: Future[World] = Future()
    is_on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    device = torch.cuda.current_device() if is_on_gpu else None

    def run() -> None:
        try:
            if device is not None:
                torch.cuda.set_device(device)  # a new thread uses the first device
            forming.set_result(form())
        except Exception as error:
            forming.set_exception(error)

    threading.Thread(target=run, name="castor-forming", daemon=True).start()
    return forming


def _abandon(late: Future[World]) -> None:
    if late.exception() is None:
        late.result().abandon()


def _is_connection_refused(address: str) -> bool:
    """Return whether the host of `address` refuses connections there."""
    try:
        reach(address)
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False
