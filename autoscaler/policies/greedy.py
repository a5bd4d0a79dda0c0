"""One device each, then the next to whoever gains the most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace


def most_gain_first(values: Mapping[str, Sequence[float]], free: int) -> dict[str, int]:
    """Devices of each job; no more than are `free`, and none that gain nothing.

    Args:
        values: what 1, 2, ... devices are worth to each job, as far as that is known, in the
            order in which the jobs get their first, known or not.
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
    """What one device more than `size` is worth; 0 where that is not known."""
    return values[size] - values[size - 1] if size < len(values) else 0.0
