"""Fluid prices: the worth of a unit of each limit when each job finishes, mu_r(T_j).

A fluid run takes the present jobs to their ends as if instances were divisible. At each moment the
limits go to the steps of highest worth per unit, along the concave envelope of each job's surplus.
The first step that does not fit sets the price. Held instances rank higher by the cost of losing
them, or equal jobs would swap instances at every plan. A job's value of progress depends on the
price at its own finish, and that price depends on all values of progress. Damped passes find the
fixed point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from autoscaler.economics.pricing.hulls import upper_hull
from autoscaler.economics.pricing.price import price_of_progress
from autoscaler.economics.scarcity.fluid_run import Segments, run_to_completion
from autoscaler.economics.supply.supply import IntArray
from autoscaler.goodput.throughput import FloatArray

PASSES = 6
DAMPING = 0.5
# Passes end when no value of progress changes by more than this share.
SETTLED = 0.01
# Decimals of the logarithm of a step's worth; steps that differ less keep the order of the jobs.
_RANK_DIGITS = 9


@dataclass(frozen=True, slots=True, eq=False)
class FluidJob:
    """One of the jobs that share the limits, with C allocations; R is the number of limits.

    Attributes:
        value_of_time: $ per second.
        work: useful examples left.
        usd_per_second: price of each allocation, (C,).
        rate: useful examples a second on each allocation, (C,).
        uses: use of each limit by each allocation, (R, C).
        held_uses: use of each limit by the held allocation, (R,); None if nothing is held.
        keeping_usd_per_second: saved by keeping the held allocation.
        starting_share: share of the held instances that do not train yet.
    """

    value_of_time: float
    work: float
    usd_per_second: FloatArray
    rate: FloatArray
    uses: FloatArray
    held_uses: FloatArray | None = None
    keeping_usd_per_second: float = 0.0
    starting_share: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """The D allocations of all n jobs, grouped by job and sorted by scaled use.

    Scaled use is the sum of the shares of all R limits. A level is one scaled use of one job;
    there are L levels.

    Attributes:
        value_of_time: of each job, $ per second, (n,).
        job: job of each allocation, (D,).
        usd_per_second: price of each allocation, (D,).
        rate: useful examples a second on each allocation, (D,).
        uses: use of each limit by each allocation, (R, D).
        first: index of each job's first allocation, (n,).
        level: level of each allocation, (D,).
        levels: range of each job's levels.
        scaled: scaled use of each level, (L,).
        kept: displacement cost that each level saves its job, $ per second, (L,).
    """

    value_of_time: FloatArray
    job: IntArray
    usd_per_second: FloatArray
    rate: FloatArray
    uses: FloatArray
    first: IntArray
    level: IntArray
    levels: Sequence[range]
    scaled: Sequence[float]
    kept: FloatArray


def finish_prices(jobs: Sequence[FluidJob], maximum: FloatArray) -> FloatArray:
    """Return mu_r(T_j), $ per second of a unit of limit r when job j finishes, (n, R).

    Args:
        jobs: n jobs with at least one allocation each.
        maximum: maximum of each limit, (R,).
    """
    if not jobs:
        return np.zeros((0, len(maximum)))
    rows = _rows(jobs, maximum)
    work = np.array([job.work for job in jobs], dtype=np.float64)
    return settled(
        work,
        maximum,
        lambda prices: _values_of_progress(rows, prices),
        lambda values: _segments(rows, values),
    )


def kept_share(held: FloatArray, starting: FloatArray, use: FloatArray) -> FloatArray:
    """Return the share of the displacement cost that a job saves at each use.

    Training instances are lost only with the last of them; starting instances are lost one by one.

    Args:
        held: scaled use of the held allocation.
        starting: share of `held` that does not train yet.
        use: scaled use with which the job goes on.
    """
    settled = np.where((use > 0) & (held > 0), 1.0 - starting, 0.0)
    within = np.clip(np.minimum(use, held) - held * (1.0 - starting), 0.0, None)
    return np.asarray(settled + within / np.maximum(held, 1e-300))


def rank_of(density: FloatArray) -> FloatArray:
    """Return the rank of steps by worth per unit of use, equal up to rounding errors."""
    return np.asarray(np.round(np.log(np.maximum(density, 1e-300)), _RANK_DIGITS))


def _rows(jobs: Sequence[FluidJob], maximum: FloatArray) -> _Rows:
    uses = np.concatenate([fluid_job.uses for fluid_job in jobs], axis=1)
    unit = 1.0 / np.maximum(maximum, 1e-12)
    scaled = (uses * unit[:, None]).sum(axis=0)
    job = np.repeat(np.arange(len(jobs)), [len(fluid_job.rate) for fluid_job in jobs])
    order = np.lexsort((scaled, job))
    scaled = scaled[order]
    is_first = np.diff(job, prepend=-1) != 0
    is_level = is_first | (np.diff(scaled, prepend=-1.0) != 0)
    level = np.cumsum(is_level) - 1
    ends = np.searchsorted(job[is_level], np.arange(len(jobs)), side="right").tolist()
    return _Rows(
        value_of_time=np.array([fluid_job.value_of_time for fluid_job in jobs]),
        job=job,
        usd_per_second=np.concatenate([fluid_job.usd_per_second for fluid_job in jobs])[order],
        rate=np.concatenate([fluid_job.rate for fluid_job in jobs])[order],
        uses=uses[:, order],
        first=np.flatnonzero(is_first),
        level=level,
        levels=[range(*bounds) for bounds in pairwise([0, *ends])],
        scaled=scaled[is_level].tolist(),
        kept=_saved_by_keeping(jobs, unit, job[order][is_level], scaled[is_level]),
    )


def _saved_by_keeping(
    jobs: Sequence[FluidJob], unit: FloatArray, job: IntArray, scaled: FloatArray
) -> FloatArray:
    """Return the displacement cost that each level of a `job` saves it, $ per second, (L,)."""
    held = np.array(
        [0.0 if fluid_job.held_uses is None else fluid_job.held_uses @ unit for fluid_job in jobs]
    )
    starting = np.array([fluid_job.starting_share for fluid_job in jobs])
    saved = np.array([fluid_job.keeping_usd_per_second for fluid_job in jobs])
    saved_usd_per_second: FloatArray = saved[job] * kept_share(held[job], starting[job], scaled)
    return saved_usd_per_second


def settled(
    work: FloatArray,
    maximum: FloatArray,
    values_at: Callable[[FloatArray], FloatArray],
    segments_at: Callable[[FloatArray], Segments],
) -> FloatArray:
    """Return the prices at which values of progress and prices agree, (n, R).

    Args:
        work: useful examples left of each of n jobs, (n,).
        maximum: maximum of each limit, (R,).
        values_at: prices (n, R) -> values of progress (n,), in $ per useful example.
        segments_at: values of progress -> steps along the envelopes.
    """
    prices = np.zeros((len(work), len(maximum)))
    values = values_at(prices)
    for _ in range(PASSES):
        prices = run_to_completion(work, segments_at(values), maximum)
        moved = DAMPING * (values_at(prices) - values)
        values = values + moved
        if (np.abs(moved) <= SETTLED * DAMPING * values).all():
            break
    return prices


def _values_of_progress(rows: _Rows, prices: FloatArray) -> FloatArray:
    for_limits = (prices.T[:, rows.job] * rows.uses).sum(axis=0)
    value_of_time = rows.value_of_time[rows.job]
    price = price_of_progress(rows.usd_per_second + for_limits, value_of_time, rows.rate)
    lowest_price: FloatArray = np.minimum.reduceat(price, rows.first)
    return lowest_price


def _segments(rows: _Rows, values: FloatArray) -> Segments:
    """Return the steps between corners of each job's upper hull of surplus over scaled use."""
    earned = values[rows.job] * rows.rate - rows.usd_per_second
    highest_earned = np.maximum.reduceat(earned, np.flatnonzero(np.diff(rows.level, prepend=-1)))
    highest = np.flatnonzero(earned == highest_earned[rows.level])
    row_of = highest[np.diff(rows.level[highest], prepend=-1) != 0].tolist()
    best, with_saving = highest_earned.tolist(), (highest_earned + rows.kept).tolist()
    parts: list[tuple[int, float, float, float, FloatArray]] = []
    base = np.zeros(len(values))
    nothing_held = 0.0, 0.0, np.zeros(len(rows.uses))
    for job, levels in enumerate(rows.levels):
        corners = upper_hull((rows.scaled[level], with_saving[level], level) for level in levels)
        corner_values = []
        for _, _, level in corners:
            row = -1 if level < 0 else row_of[level]
            values_of_corner = (
                nothing_held
                if row < 0
                else (best[level], float(rows.rate[row]), rows.uses[:, row])
            )
            corner_values.append(values_of_corner)
        base[job] = corner_values[0][1]
        for (before, after), (low, high) in zip(
            pairwise(corners), pairwise(corner_values), strict=True
        ):
            slope = (after[1] - before[1]) / (after[0] - before[0])
            rise = max(high[0] - low[0], 0.0)
            parts.append((job, slope, rise, high[1] - low[1], high[2] - low[2]))
    columns = list(zip(*parts, strict=True)) if parts else [(), (), (), (), ()]
    rank = rank_of(np.array(columns[1], dtype=np.float64))
    order = np.argsort(-rank, kind="stable")
    uses = np.array(columns[4], dtype=np.float64).reshape(-1, len(rows.uses)).T
    return Segments(
        job=np.array(columns[0], dtype=np.int64)[order],
        rank=rank[order],
        surplus=np.array(columns[2], dtype=np.float64)[order],
        rate=np.array(columns[3], dtype=np.float64)[order],
        uses=uses[:, order],
        base_rate=base,
    )
