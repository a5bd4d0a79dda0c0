"""Orphaned processes of a lost machine."""

from __future__ import annotations

from pathlib import Path

import psutil

from autoscaler.clock import Clock
from providers.metadata import DIRECTORY_VARIABLE

_ATTEMPTS = 20
_PAUSE_SECONDS = 0.05


def find_orphans(disk: Path) -> set[psutil.Process]:
    """Return the processes of the instance with this disk, and their descendants.

    An environment variable marks the processes. A process that dropped the variable and has left
    its parent is not found.
    """
    processes: set[psutil.Process] = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get(DIRECTORY_VARIABLE) == str(disk):
                processes |= {process, *process.children(recursive=True)}
        except psutil.Error:
            continue
    return processes


def kill_orphans(disk: Path, clock: Clock) -> bool:
    """Kill the processes of an instance; return False if some remain after a second."""
    for _ in range(_ATTEMPTS):
        leftovers = find_orphans(disk)
        if not leftovers:
            return True
        for process in leftovers:
            try:
                process.kill()
            except psutil.Error:
                continue
        clock.sleep(_PAUSE_SECONDS)
    return False
