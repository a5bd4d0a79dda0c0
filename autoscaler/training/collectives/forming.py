"""The forming of a world, which is given up early where a member is gone.

Torch waits for the members of a new process group, and for the host of a store, up to a timeout,
and can't be told to stop. So the forming is done on a thread of its own, which is left behind.
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

_LOOK_SECONDS: Final = 0.05
# Each probe is one more connection to the store, so that it is made late and seldom.
_PROBE_SECONDS: Final = 1.0


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
    forming = _begun(form)
    probe_at_seconds = clock.monotonic() + _PROBE_SECONDS
    while not wait([forming], _LOOK_SECONDS).done:
        is_lost = has_lost_member()
        if clock.monotonic() >= probe_at_seconds:
            is_lost = is_lost or _is_refused(store)
            probe_at_seconds = clock.monotonic() + _PROBE_SECONDS
        if is_lost and not forming.done():
            forming.add_done_callback(_abandon)
            raise RuntimeError("a member was lost before its world had formed")
    return forming.result()


def _begun(form: Callable[[], World]) -> Future[World]:
    """Begin to form a world on a thread, which does not hold up the end of the process."""
    forming: Future[World] = Future()
    is_on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    device = torch.cuda.current_device() if is_on_gpu else None

    def run() -> None:
        try:
            if device is not None:
                torch.cuda.set_device(device)  # a thread begins with the first device
            forming.set_result(form())
        except Exception as error:
            forming.set_exception(error)

    threading.Thread(target=run, name="castor-forming", daemon=True).start()
    return forming


def _abandon(late: Future[World]) -> None:
    if late.exception() is None:
        late.result().abandon()


def _is_refused(address: str) -> bool:
    """Return whether the host of an address says that nobody listens there."""
    try:
        reach(address)
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False
