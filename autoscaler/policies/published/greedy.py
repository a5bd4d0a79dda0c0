"""Greedy sharing: one device for each job, then the next device to the highest gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace


def most_gain_first(values: Mapping[str, Sequence[float]], free: int) -> dict[str, int]:
    """Return devices by job id, at most `free` in all; devices without gain stay unused.

    Args:
        values: value of 1, 2, ... devices of each job, as far as known, in the order in which jobs
            get their first device. That first device does not depend on its value.
        free: devices to give.
    """
    sizes = {job: int(turn < free) for turn, job in enumerate(values)}
    free -= sum(sizes.values())
    heap = [
        (-gain_of_next(values[job], size), turn, job)
        for turn, (job, size) in enumerate(sizes.items())
        if size > 0
    ]
    heapify(heap)
    while free > 0 and heap:
        loss, turn, job = heap[0]
        if loss >= 0:
            break
        sizes[job] += 1
        free -= 1
        heapreplace(heap, (-gain_of_next(values[job], sizes[job]), turn, job))
    return sizes


def gain_of_next(values: Sequence[float], size: int) -> float:
    """Return the gain of the device after the first `size`; 0 where that is unknown."""
    return values[size] - values[size - 1] if size < len(values) else 0.0
