"""Threads for work of requests that may block. Stops have threads of their own.

All other work shares the threads of the framework. Slow reads can occupy all of these, and a stop
of the fleet, a job or a study must not wait for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final, ParamSpec, TypeVar

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

Parameters = ParamSpec("Parameters")
Value = TypeVar("Value")

_STOPS: Final = re.compile(r"(/v1|/fleet)/((un)?freeze|drain)|(/v1)?/(jobs|studies)/[^/]+/stop")
_STOP_THREADS: Final = 8
_limiters: Final[RunVar[CapacityLimiter]] = RunVar("castor-stops")


async def in_thread_of(
    path: str,
    work: Callable[Parameters, Value],
    *arguments: Parameters.args,
    **options: Parameters.kwargs,
) -> Value:
    """Return what `work` returns in a thread for requests of a path."""
    call = partial(work, *arguments, **options)
    return await run_sync(call, limiter=_stop_limiter() if _STOPS.fullmatch(path) else None)


async def in_stop_thread(work: Callable[[], Value]) -> Value:
    """Return what the work of a stop returns in one of the threads that only stops use."""
    return await run_sync(work, limiter=_stop_limiter())


def _stop_limiter() -> CapacityLimiter:
    """Return the limiter of the running event loop for stops."""
    limiter = _limiters.get(None)
    if limiter is None:
        limiter = CapacityLimiter(_STOP_THREADS)
        _limiters.set(limiter)
    return limiter
