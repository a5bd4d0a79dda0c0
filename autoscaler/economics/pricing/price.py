"""Price of progress: the cost of one useful example in money and in waiting.

The price of progress of an allocation is ``(p + v) / G``. Its price p and the value of time v are
both in $ per second. Its goodput G is in useful examples a second. A change from a to a dearer b
lowers it exactly if ``(G(b) - G(a)) / (p(b) - p(a)) > G(a) / (p(a) + v)``. Goodput rises in steps,
so the minimum is taken over all allocations, not over neighbouring sizes only.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from autoscaler.economics.supply.supply import BoolArray
from autoscaler.goodput.throughput import FloatArray


def price_of_progress(
    usd_per_second: ArrayLike, value_of_time: ArrayLike, rate: ArrayLike
) -> FloatArray:
    """Return ``(p + v) / G``: $ per useful example, waiting included.

    All arguments broadcast.

    Args:
        usd_per_second: p, price of the allocation.
        value_of_time: v, cost of a second of waiting to the job's owner, $ per second.
        rate: G, useful examples a second.
    """
    price: FloatArray = (np.asarray(usd_per_second) + np.asarray(value_of_time)) / np.asarray(rate)
    return price


def hull(usd_per_second: FloatArray, rate: FloatArray, allowed: BoolArray) -> list[int]:
    """Return indices of the allowed allocations that are best at some value of time.

    They are sorted by rising price and rate. The first has the least $ per useful example (v = 0),
    the last the highest rate (v to infinity). Points below the upper hull of (p, G) with the
    origin are best at no v. Of equal points the first is kept. All arrays are (A,).
    """
    order = np.lexsort((-rate, usd_per_second))
    order = order[allowed[order]]
    points = zip(usd_per_second[order].tolist(), rate[order].tolist(), order.tolist(), strict=True)
    return [index for _, _, index in upper_hull(points) if index >= 0]


# Use, worth, and index; holding nothing has index -1.
Corner = tuple[float, float, int]


def upper_hull(points: Iterable[Corner]) -> list[Corner]:
    """Return the hull's corners by rising use and worth.

    The hull begins with nothing, or with the best point of no use.

    Args:
        points: sorted by rising use, never below 0. Of equal points the first is kept.
    """
    corners: list[Corner] = [(0.0, 0.0, -1)]
    highest_worth = 0.0
    for point in points:
        if point[1] <= highest_worth:
            continue
        highest_worth = point[1]
        while corners and (point[0] <= corners[-1][0] or _sags(corners, point)):
            corners.pop()
        corners.append(point)
    return corners


def _sags(corners: list[Corner], new: Corner) -> bool:
    """Return whether the last corner lies on or below the line from the one before it to `new`."""
    if len(corners) < 2:
        return False
    (x0, y0, _), (x1, y1, _) = corners[-2:]
    return (y1 - y0) * (new[0] - x0) <= (new[1] - y0) * (x1 - x0)


def value_of_time_between(cheap: tuple[float, float], dear: tuple[float, float]) -> float:
    """Return the value of time, $ per second, at which two (p, G) cost the same.

    Both then have the same price of progress. Below that value the cheap one is better, above it
    the dear one. 0 if the dear one is not faster.
    """
    (low, slow), (high, fast) = cheap, dear
    if fast <= slow:
        return 0.0
    return max((high * slow - low * fast) / (fast - slow), 0.0)
