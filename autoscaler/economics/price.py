"""The price of progress: what one useful example costs in money and in waiting.

Going from a to b lowers it exactly if the chord buys more than the average,
``(G(b) - G(a)) / (p(b) - p(a)) > G(a) / (p(a) + v)``, for any dearer b. Goodput has steps, so the
choice is the least price over all allocations, never a climb from one size to the next.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from autoscaler.economics.hulls import upper_hull
from autoscaler.economics.supply import BoolArray
from autoscaler.goodput.throughput import FloatArray


def price_of_progress(
    usd_per_second: ArrayLike, value_of_time: ArrayLike, rate: ArrayLike
) -> FloatArray:
    """``(p + v) / G``: $ per useful example, waiting included.

    Args:
        usd_per_second: what is paid, p.
        value_of_time: $ that a second of waiting costs the job's owner, v.
        rate: useful examples a second, G.
    """
    price: FloatArray = (np.asarray(usd_per_second) + np.asarray(value_of_time)) / np.asarray(rate)
    return price


def hull(usd_per_second: FloatArray, rate: FloatArray, allowed: BoolArray) -> list[int]:
    """The allowed allocations that are best at some value of time, by rising price and rate.

    The first is the one of least $ per progress (v = 0), the last the fastest (v to infinity);
    what lies beneath the upper hull of (p, G), the origin included, is best at no v. Of equals
    the first stands.
    """
    order = np.lexsort((-rate, usd_per_second))
    order = order[allowed[order]]
    points = zip(usd_per_second[order].tolist(), rate[order].tolist(), order.tolist(), strict=True)
    return [index for _, _, index in upper_hull(points) if index >= 0]


def value_of_time_between(cheap: tuple[float, float], dear: tuple[float, float]) -> float:
    """The value of time at which two (p, G) have one price of progress; never below 0.

    Below it the cheap one is the better, above it the dear one; 0 where that is not the faster.
    """
    (low, slow), (high, fast) = cheap, dear
    if fast <= slow:
        return 0.0
    return max((high * slow - low * fast) / (fast - slow), 0.0)
