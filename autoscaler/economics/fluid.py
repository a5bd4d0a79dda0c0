"""What a unit of each limit will be worth when each job finishes: mu(T_j), by a fluid run.

The jobs present are run to their ends as if instances could be divided: at each moment the limits
go to where a unit is worth most, along the concave envelope of each job's surplus. The first that
cannot be had sets the price. A job's value of progress depends on the price at its own finish,
and that on the values of all: a fixed point, by damped passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from autoscaler.economics.fluid_run import Segments, run_out
from autoscaler.economics.price import price_of_progress
from autoscaler.goodput.throughput import FloatArray

PASSES = 6
DAMPING = 0.5
# Passes end when no value of progress moves by more than this share.
SETTLED = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class FluidJob:
    """One job among those that share the limits.

    Attributes:
        value_of_time: $ per second.
        work: useful examples left.
        usd_per_second: of its C allocations, (C,).
        rate: useful examples a second, (C,).
        uses: of the R limits, (R, C).
    """

    value_of_time: float
    work: float
    usd_per_second: FloatArray
    rate: FloatArray
    uses: FloatArray


def finish_prices(jobs: Sequence[FluidJob], maximum: FloatArray) -> FloatArray:
    """mu_r(T_j), $ per second of a unit of limit r when job j finishes: (n, R).

    Args:
        jobs: n of them.
        maximum: of each limit, (R,).
    """

    def values_at(prices: FloatArray) -> FloatArray:
        found = [_value_of_progress(job, own) for job, own in zip(jobs, prices, strict=True)]
        return np.array(found, dtype=np.float64)

    work = np.array([job.work for job in jobs], dtype=np.float64)
    return settled(work, maximum, values_at, lambda values: _segments(jobs, values, maximum))


def settled(
    work: FloatArray,
    maximum: FloatArray,
    values_at: Callable[[FloatArray], FloatArray],
    segments_at: Callable[[FloatArray], Segments],
) -> FloatArray:
    """The prices at which the values of progress and the prices agree, (n, R).

    Args:
        work: useful examples left to each of n jobs, (n,).
        maximum: of each limit, (R,).
        values_at: prices (n, R) -> values of progress, (n,).
        segments_at: values of progress -> steps along the envelopes.
    """
    prices = np.zeros((len(work), len(maximum)))
    values = values_at(prices)
    for _ in range(PASSES):
        prices = run_out(work, segments_at(values), maximum)
        moved = DAMPING * (values_at(prices) - values)
        values = values + moved
        if (np.abs(moved) <= SETTLED * DAMPING * values).all():
            break
    return prices


def _value_of_progress(job: FluidJob, prices: FloatArray) -> float:
    paid = job.usd_per_second + prices @ job.uses
    return float(price_of_progress(paid, job.value_of_time, job.rate).min())


def _segments(jobs: Sequence[FluidJob], values: FloatArray, maximum: FloatArray) -> Segments:
    parts: list[tuple[int, float, float, float, FloatArray]] = []
    base = np.zeros(len(jobs))
    for index, (job, value) in enumerate(zip(jobs, values, strict=True)):
        steps, base[index] = _envelope(job, float(value), maximum)
        parts.extend((index, *step) for step in steps)
    parts.sort(key=lambda part: -part[1])
    columns = list(zip(*parts, strict=True)) if parts else [(), (), (), (), ()]
    return Segments(
        job=np.array(columns[0], dtype=np.int64),
        density=np.array(columns[1], dtype=np.float64),
        surplus=np.array(columns[2], dtype=np.float64),
        rate=np.array(columns[3], dtype=np.float64),
        uses=np.array(columns[4], dtype=np.float64).reshape(-1, len(maximum)).T,
        base_rate=base,
    )


def _envelope(
    job: FluidJob, value: float, maximum: FloatArray
) -> tuple[list[tuple[float, float, float, FloatArray]], float]:
    """Steps (density, surplus, rate, uses) of the upper hull of surplus over scaled use.

    Scaled use is the sum of the shares of all limits. The second is the rate at no use.
    """
    earned = value * job.rate - job.usd_per_second
    scaled = (job.uses / np.maximum(maximum, 1e-12)[:, None]).sum(axis=0)
    order = np.lexsort((-earned, scaled))
    best_before = np.concatenate([[0.0], np.maximum.accumulate(earned[order])[:-1]])
    rises = order[earned[order] > np.maximum(best_before, 0.0)]
    corners: list[tuple[float, float, int]] = [(0.0, 0.0, -1)]
    for index in rises.tolist():
        corner = (float(scaled[index]), float(earned[index]), index)
        while corners and (corner[0] <= corners[-1][0] or _sags(corners, corner)):
            corners.pop()
        corners.append(corner)
    return _steps(job, corners)


def _sags(corners: list[tuple[float, float, int]], new: tuple[float, float, int]) -> bool:
    """Whether the last corner lies on or beneath the line from the one before it to the new."""
    if len(corners) < 2:
        return False
    (x0, y0, _), (x1, y1, _) = corners[-2:]
    return (y1 - y0) * (new[0] - x0) <= (new[1] - y0) * (x1 - x0)


def _steps(
    job: FluidJob, corners: list[tuple[float, float, int]]
) -> tuple[list[tuple[float, float, float, FloatArray]], float]:
    def at(index: int) -> tuple[float, FloatArray]:
        if index < 0:
            return 0.0, np.zeros(len(job.uses))
        return float(job.rate[index]), job.uses[:, index]

    steps = []
    for (x0, y0, before), (x1, y1, after) in pairwise(corners):
        (slow, little), (fast, much) = at(before), at(after)
        steps.append(((y1 - y0) / (x1 - x0), y1 - y0, fast - slow, much - little))
    return steps, at(corners[0][2])[0]
