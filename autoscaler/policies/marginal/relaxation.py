"""Linear relaxation of a multiple-choice knapsack with one limit, without a solver.

Each job's steps follow the upper hull of its value over its use. The steps of all jobs are taken
in the order of value per unit until the limit is reached. At most one job then has a mixture of
two columns (Sinha and Zoltners 1979).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np

from autoscaler.economics.pricing.hulls import upper_hull
from autoscaler.economics.supply.supply import IntArray
from autoscaler.goodput.throughput import FloatArray

# Relative excess over the remaining capacity at which a step still counts as whole.
_NEARLY = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Optimal mixture of columns.

    Attributes:
        share: share of each column, (D,).
        price: value of one more unit of the limit; 0 where everything fits.
        value: total value.
    """

    share: FloatArray
    price: float
    value: float


def best_mixture(job: IntArray, value: FloatArray, use: FloatArray, room: float) -> Mixture:
    """Return the shares of the greatest value, at most 1 over the columns of each job.

    Args:
        job: index of the job of each of D columns, (D,).
        value: value of each column, (D,); above 0.
        use: use of the limit, (D,); at least 0.
        room: capacity of the limit.
    """
    rows = sorted(zip(job.tolist(), use.tolist(), (-value).tolist(), range(len(job)), strict=True))
    share, price = np.zeros(len(job)), 0.0
    steps: list[tuple[float, float, int, int]] = []
    for _, job_rows in groupby(rows, key=itemgetter(0)):
        corners = upper_hull(
            (column_use, -negative_value, column)
            for _, column_use, negative_value, column in job_rows
        )
        if corners[0][2] >= 0:
            share[corners[0][2]] = 1.0
        for (previous_use, previous_value, previous), (
            more,
            following_value,
            following,
        ) in pairwise(corners):
            steps.append(
                (
                    (following_value - previous_value) / (more - previous_use),
                    more - previous_use,
                    previous,
                    following,
                )
            )
    for density, more, previous, following in sorted(steps, key=lambda step: -step[0]):
        part = min(room / more, 1.0)
        part = 1.0 if part > 1.0 - _NEARLY else part
        share[following] = part
        if previous >= 0:
            share[previous] = 1.0 - part
        room = max(room - part * more, 0.0)
        if part < 1.0:
            price = density
            break
    return Mixture(share, price, float(value @ share))
