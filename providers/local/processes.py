"""The process tree of one instance, through Linux: /proc, affinity, sub-reaper.

Only the standard library: the machine starts with it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Set
from contextlib import suppress

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Adopt every descendant whose parent dies, so that none leaves the tree (prctl(2)).

    Raises:
        OSError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants() -> list[int]:
    """The processes below this one. One that is just being born or orphaned may be missing."""
    found: list[int] = []
    parents = [os.getpid()]
    while parents:
        children = _children(parents.pop())
        found += children
        parents += children
    return found


def confine(processes: Iterable[int], cores: Set[int]) -> None:
    """Take from every thread of `processes` the right to run outside `cores`."""
    for process in processes:
        for thread in _threads(process):
            with suppress(ProcessLookupError):
                allowed = os.sched_getaffinity(thread)
                if not allowed <= cores:
                    os.sched_setaffinity(thread, (allowed & cores) or cores)


def send_signal(processes: Iterable[int], number: int) -> None:
    """Send the signal to those that still live."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _threads(process: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{process}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _children(process: int) -> list[int]:
    found: list[int] = []
    for thread in _threads(process):
        with (
            suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{process}/task/{thread}/children") as file,
        ):
            found += [int(name) for name in file.read().split()]
    return found
