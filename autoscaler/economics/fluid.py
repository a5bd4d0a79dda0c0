"""What a unit of each limit will be worth when each job finishes: mu(T_j), by a fluid run.

The jobs present are run to their ends as if instances could be divided: at each moment the limits
go to where a unit is worth most, along the concave envelope of each job's surplus. What a job
holds counts for more by what keeping it saves, or jobs that are alike would take turns at every
plan: of two of them the first to finish pays the other's price, and so is worth more. The first
step that cannot be had sets the price. A job's value of progress depends on the price at its own
finish, and that on the values of all: a fixed point, by damped passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from autoscaler.economics.fluid_run import Segments, run_out
from autoscaler.economics.hulls import upper_hull
from autoscaler.economics.price import price_of_progress
from autoscaler.economics.supply import IntArray
from autoscaler.goodput.throughput import FloatArray

PASSES = 6
DAMPING = 0.5
# Passes end when no value of progress moves by more than this share.
SETTLED = 0.01
# Of the logarithm of the worth of a step: what differs by less comes in the order of the jobs.
_RANK_DIGITS = 9


@dataclass(frozen=True, slots=True, eq=False)
class FluidJob:
    """One job among those that share the limits.

    Attributes:
        value_of_time: $ per second.
        work: useful examples left.
        usd_per_second: of its C allocations, (C,).
        rate: useful examples a second, (C,).
        uses: of the R limits, (R, C).
        held_uses: of what the job holds, (R,); None where it holds nothing.
        keeping_usd_per_second: saved by keeping what it holds.
        starting_share: of what it holds, what does not train yet.
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
    """The D allocations of n jobs in a row: each job's together, by rising scaled use.

    Attributes:
        value_of_time: $ per second, (n,).
        job: whose each is, (D,).
        usd_per_second: (D,).
        rate: useful examples a second, (D,).
        uses: of the limits, (R, D).
        first: where each job's begin, (n,).
        level: which level, of one job and one scaled use, each is of, (D,); there are L of them.
        levels: of each job, which of those are its own.
        scaled: the sum of the shares of all limits that each level uses, (L,).
        kept: what of keeping its place each level saves its job, $ per second, (L,).
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
    """mu_r(T_j), $ per second of a unit of limit r when job j finishes: (n, R).

    Args:
        jobs: n of them, each of at least one allocation.
        maximum: of each limit, (R,).
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
    """Return the share of what keeping its place saves a job that goes on with each use.

    What trains is not lost before the last of it, what does not train yet piece by piece.

    Args:
        held: the scaled use of what the job holds.
        starting: the share of that which does not train yet.
        use: the scaled use that it goes on with.
    """
    settled = np.where((use > 0) & (held > 0), 1.0 - starting, 0.0)
    within = np.clip(np.minimum(use, held) - held * (1.0 - starting), 0.0, None)
    return np.asarray(settled + within / np.maximum(held, 1e-300))


def rank_of(density: FloatArray) -> FloatArray:
    """Return a rank of steps by their worth for a unit of use, equal where that is but for
    rounding."""
    return np.asarray(np.round(np.log(np.maximum(density, 1e-300)), _RANK_DIGITS))


def _rows(jobs: Sequence[FluidJob], maximum: FloatArray) -> _Rows:
    uses = np.concatenate([own.uses for own in jobs], axis=1)
    unit = 1.0 / np.maximum(maximum, 1e-12)
    scaled = (uses * unit[:, None]).sum(axis=0)
    job = np.repeat(np.arange(len(jobs)), [len(own.rate) for own in jobs])
    order = np.lexsort((scaled, job))
    scaled = scaled[order]
    is_next = np.diff(job, prepend=-1) != 0
    is_level = is_next | (np.diff(scaled, prepend=-1.0) != 0)
    level = np.cumsum(is_level) - 1
    ends = np.searchsorted(job[is_level], np.arange(len(jobs)), side="right").tolist()
    return _Rows(
        value_of_time=np.array([own.value_of_time for own in jobs]),
        job=job,
        usd_per_second=np.concatenate([own.usd_per_second for own in jobs])[order],
        rate=np.concatenate([own.rate for own in jobs])[order],
        uses=uses[:, order],
        first=np.flatnonzero(is_next),
        level=level,
        levels=[range(*each) for each in pairwise([0, *ends])],
        scaled=scaled[is_level].tolist(),
        kept=_kept(jobs, unit, job[order][is_level], scaled[is_level]),
    )


def _kept(
    jobs: Sequence[FluidJob], unit: FloatArray, job: IntArray, scaled: FloatArray
) -> FloatArray:
    """Return what of keeping its place each level of a `job` saves it, (L,)."""
    held = np.array([0.0 if own.held_uses is None else own.held_uses @ unit for own in jobs])
    starting = np.array([own.starting_share for own in jobs])
    saved = np.array([own.keeping_usd_per_second for own in jobs])
    kept: FloatArray = saved[job] * kept_share(held[job], starting[job], scaled)
    return kept


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


def _values_of_progress(rows: _Rows, prices: FloatArray) -> FloatArray:
    for_limits = (prices.T[:, rows.job] * rows.uses).sum(axis=0)
    value_of_time = rows.value_of_time[rows.job]
    price = price_of_progress(rows.usd_per_second + for_limits, value_of_time, rows.rate)
    least: FloatArray = np.minimum.reduceat(price, rows.first)
    return least


def _segments(rows: _Rows, values: FloatArray) -> Segments:
    """Steps of the upper hull of each job's surplus over scaled use, from corner to corner."""
    earned = values[rows.job] * rows.rate - rows.usd_per_second
    most = np.maximum.reduceat(earned, np.flatnonzero(np.diff(rows.level, prepend=-1)))
    highest = np.flatnonzero(earned == most[rows.level])
    row_of = highest[np.diff(rows.level[highest], prepend=-1) != 0].tolist()
    best, kept = most.tolist(), (most + rows.kept).tolist()
    parts: list[tuple[int, float, float, float, FloatArray]] = []
    base = np.zeros(len(values))
    nothing = 0.0, 0.0, np.zeros(len(rows.uses))
    for job, levels in enumerate(rows.levels):
        corners = upper_hull((rows.scaled[level], kept[level], level) for level in levels)
        places = []
        for _, _, level in corners:
            row = -1 if level < 0 else row_of[level]
            has = nothing if row < 0 else (best[level], float(rows.rate[row]), rows.uses[:, row])
            places.append(has)
        base[job] = places[0][1]
        for (before, after), (low, high) in zip(pairwise(corners), pairwise(places), strict=True):
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
