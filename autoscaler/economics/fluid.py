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

from autoscaler.economics.price import price_of_progress
from autoscaler.economics.supply import BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray

PASSES = 6
DAMPING = 0.5
# Passes end when no value of progress moves by more than this share.
SETTLED = 0.01
# With more jobs than this several finish at once: the price moves little with each.
_PHASES = 32


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


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Steps along the envelopes of all jobs, the worthiest first; D of them.

    Attributes:
        job: whose step it is, (D,).
        density: $ per second of surplus for one unit of scaled use, (D,).
        surplus: $ per second that the step adds, (D,).
        rate: useful examples a second that it adds, (D,).
        uses: of each limit that it adds, (R, D).
        base_rate: what each job has without using any limit, (n,).
    """

    job: IntArray
    density: FloatArray
    surplus: FloatArray
    rate: FloatArray
    uses: FloatArray
    base_rate: FloatArray


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
        prices = _run(work, segments_at(values), maximum)
        moved = DAMPING * (values_at(prices) - values)
        values = values + moved
        if (np.abs(moved) <= SETTLED * DAMPING * values).all():
            break
    return prices


def _value_of_progress(job: FluidJob, prices: FloatArray) -> float:
    paid = job.usd_per_second + prices @ job.uses
    return float(price_of_progress(paid, job.value_of_time, job.rate).min())


def _run(work: FloatArray, segments: Segments, maximum: FloatArray) -> FloatArray:
    """Run to the end of all jobs; the prices when each finishes."""
    count = len(work)
    left = work
    active = np.ones(count, dtype=np.bool_)
    prices = np.zeros((count, len(maximum)))
    while active.any():
        rate, now = _fill(segments, active, maximum)
        prices[active] = now
        if not (rate[active] > 0).any():
            break
        runs = active & (rate > 0)
        seconds = np.where(runs, left / np.where(runs, rate, 1.0), np.inf)
        together = min(max(1, count // _PHASES), int(runs.sum()))
        step = np.partition(seconds, together - 1)[together - 1]
        left = left - rate * step
        active = active & (seconds > step)
    return prices


def _fill(
    segments: Segments, active: BoolArray, maximum: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Give the limits to the worthiest steps of active jobs: rates (n,) and prices (R,)."""
    rate = np.where(active, segments.base_rate, 0.0)
    prices = np.zeros(len(maximum))
    room = maximum.copy()
    (queue,) = np.nonzero(active[segments.job])
    while len(queue):
        total = np.cumsum(segments.uses[:, queue], axis=1)
        over = (total > room[:, None] * (1.0 + 1e-12)).any(axis=0)
        first = int(np.argmax(over)) if over.any() else len(queue)
        given = queue[:first]
        rate += np.bincount(segments.job[given], segments.rate[given], len(rate))
        if first == len(queue):
            break
        if first:
            room = np.maximum(room - total[:, first - 1], 0.0)
        step = int(queue[first])
        uses = segments.uses[:, step]
        shares = np.where(uses > 0, room / np.where(uses > 0, uses, 1.0), np.inf)
        full = int(np.argmin(shares))
        rate[segments.job[step]] += shares[full] * segments.rate[step]
        prices[full] = segments.surplus[step] / uses[full]
        room = np.maximum(room - shares[full] * uses, 0.0)
        queue = _still_open(segments, queue[first:], full)
    return rate, prices


def _still_open(segments: Segments, queue: IntArray, full: int) -> IntArray:
    """Without the steps that need the full limit, nor those beyond them on their envelopes."""
    (blocked,) = np.nonzero(segments.uses[full, queue] > 0)
    job = segments.job[queue]
    stops = np.full(len(segments.base_rate), len(queue))
    stops[job[blocked[::-1]]] = blocked[::-1]
    kept: IntArray = queue[np.arange(len(queue)) < stops[job]]
    return kept


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
