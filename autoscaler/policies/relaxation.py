"""The linear relaxation of a multiple-choice knapsack with one limit, without a solver.

Each job goes along the upper hull of its value over its use, the steps of all jobs in the order
of their value for each unit, until the limit is reached: of at most one job two columns are mixed
(Sinha and Zoltners 1979).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np

from autoscaler.economics.hulls import upper_hull
from autoscaler.economics.supply import IntArray
from autoscaler.goodput.throughput import FloatArray

# A step that exceeds what is left by no more than this share of itself is had whole.
_NEARLY = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Shares of each column, (D,), the price of a unit of the limit, and the value of all.

    The price is what one more unit would be worth: 0 where there is room for everything.
    """

    share: FloatArray
    price: float
    value: float


def best_mixture(job: IntArray, value: FloatArray, use: FloatArray, room: float) -> Mixture:
    """The shares of most value, at most 1 of each job's columns together.

    Args:
        job: whose each of D columns is, (D,).
        value: what it is worth, (D,); above 0.
        use: of the limit, (D,); never below 0.
        room: of the limit.
    """
    rows = sorted(zip(job.tolist(), use.tolist(), (-value).tolist(), range(len(job)), strict=True))
    share, price = np.zeros(len(job)), 0.0
    steps: list[tuple[float, float, int, int]] = []
    for _, own in groupby(rows, key=itemgetter(0)):
        corners = upper_hull((taken, -worth, column) for _, taken, worth, column in own)
        if corners[0][2] >= 0:
            share[corners[0][2]] = 1.0
        for (less, low, before), (more, high, after) in pairwise(corners):
            steps.append(((high - low) / (more - less), more - less, before, after))
    for density, more, before, after in sorted(steps, key=lambda step: -step[0]):
        part = min(room / more, 1.0)
        part = 1.0 if part > 1.0 - _NEARLY else part
        share[after] = part
        if before >= 0:
            share[before] = 1.0 - part
        room = max(room - part * more, 0.0)
        if part < 1.0:
            price = density
            break
    return Mixture(share, price, float(value @ share))
