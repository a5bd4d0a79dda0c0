"""Process tree of one instance on Linux: /proc, CPU affinity and sub-reaper.

The machine imports this module, so it needs only the standard library.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Set
from contextlib import suppress

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Make this process adopt every descendant whose parent ends (prctl(2)).

    Raises:
        OSError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants() -> list[int]:
    """Return the descendants of this process; very new or just orphaned ones may be missing."""
    processes: list[int] = []
    parents = [os.getpid()]
    while parents:
        children = _children(parents.pop())
        processes += children
        parents += children
    return processes


def confine(processes: Iterable[int], cores: Set[int]) -> None:
    """Restrict every thread of `processes` to `cores`."""
    for process in processes:
        for thread in _threads(process):
            with suppress(ProcessLookupError):
                allowed = os.sched_getaffinity(thread)
                if not allowed <= cores:
                    os.sched_setaffinity(thread, (allowed & cores) or cores)


def send_signal(processes: Iterable[int], number: int) -> None:
    """Send a signal to the processes that still run."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _threads(process: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{process}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _children(process: int) -> list[int]:
    children: list[int] = []
    for thread in _threads(process):
        with (
            suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{process}/task/{thread}/children") as file,
        ):
            children += [int(name) for name in file.read().split()]
    return children
