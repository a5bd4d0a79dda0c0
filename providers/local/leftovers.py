"""Processes that a lost machine left behind."""

from __future__ import annotations

from pathlib import Path

import psutil

from autoscaler.clock import Clock
from providers.metadata import DIRECTORY_VARIABLE

_ATTEMPTS = 20
_PAUSE_SECONDS = 0.05


def find_leftovers(disk: Path) -> set[psutil.Process]:
    """Living processes that carry the mark of the instance with this disk, and their children.

    The mark is a variable of the environment: a process that dropped it and left its parent as
    well is not found.
    """
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get(DIRECTORY_VARIABLE) == str(disk):
                found |= {process, *process.children(recursive=True)}
        except psutil.Error:
            continue
    return found


def kill_leftovers(disk: Path, clock: Clock) -> bool:
    """Kill until none is left; False if some would not go."""
    for _ in range(_ATTEMPTS):
        leftovers = find_leftovers(disk)
        if not leftovers:
            return True
        for process in leftovers:
            try:
                process.kill()
            except psutil.Error:
                continue
        clock.sleep(_PAUSE_SECONDS)
    return False
