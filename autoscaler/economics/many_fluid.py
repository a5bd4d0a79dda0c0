"""The fluid run of many jobs as arrays: `finish_prices`, faster from some 50 jobs on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.economics.fluid import kept_share, rank_of, settled
from autoscaler.economics.fluid_run import Segments
from autoscaler.economics.supply import BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray

# Steps of a hull whose slopes differ by less than this share are one.
_LEVEL = 1e-12


@dataclass(frozen=True, eq=False)
class Fluid:
    """n jobs as arrays: their D allocations in a row, those of each job together.

    `value_of_time` and `work` are (n,), `job`, `usd_per_second` and `rate` (D,), `uses` (R, D), as
    those of `FluidJob`; `job` says whose each is and rises from 0, without a gap. `held_uses` are
    (R, n), 0 where nothing is held, `keeping_usd_per_second` and `starting_share` (n,).
    """

    value_of_time: FloatArray
    work: FloatArray
    job: IntArray
    usd_per_second: FloatArray
    rate: FloatArray
    uses: FloatArray
    held_uses: FloatArray
    keeping_usd_per_second: FloatArray
    starting_share: FloatArray

    @cached_property
    def first(self) -> IntArray:
        """Where the allocations of each job begin, (n,)."""
        return starts(self.job)


def fluid_prices(jobs: Fluid, maximum: FloatArray) -> FloatArray:
    """As `finish_prices`: (n, R)."""
    if not len(jobs.work):
        return np.zeros((0, len(maximum)))
    return settled(
        jobs.work,
        maximum,
        lambda prices: _values_of_progress(jobs, prices),
        lambda values: _segments(jobs, values, maximum),
    )


def _values_of_progress(jobs: Fluid, prices: FloatArray) -> FloatArray:
    paid = jobs.usd_per_second.copy()
    for price, use in zip(prices.T, jobs.uses, strict=True):
        paid += price[jobs.job] * use
    paid += jobs.value_of_time[jobs.job]
    least: FloatArray = np.minimum.reduceat(paid / jobs.rate, jobs.first)
    return least


def _segments(jobs: Fluid, values: FloatArray, maximum: FloatArray) -> Segments:
    """Steps of the upper hulls of surplus over scaled use, from corner to corner for all at once.

    Scaled use is the sum of the shares of all limits. A hull begins with nothing, or with the best
    of what uses no limit, and goes where a unit of use is worth most.
    """
    count, limits = len(jobs.work), len(maximum)
    at_use, at_worth, at_rate = np.zeros(count), np.zeros(count), np.zeros(count)
    at_kept = np.zeros(count)
    at_uses = np.zeros((limits, count))
    parts: list[tuple[NDArray[Any], ...]] = []
    earned = values[jobs.job] * jobs.rate - jobs.usd_per_second
    unit = 1.0 / np.maximum(maximum, 1e-12)[:, None]
    every_scaled = (jobs.uses * unit).sum(axis=0)
    kept = _kept(jobs, (jobs.held_uses * unit).sum(axis=0), every_scaled)
    rows = np.flatnonzero(earned + kept > 0)
    scaled = every_scaled[rows]
    steps = _Steps(rows, jobs.job[rows], scaled, (earned + kept)[rows])
    free = steps.take(scaled <= 0)
    if len(free.rows):
        free = free.take(_highest(free.job, free.earned))
        at_worth[free.job], at_rate[free.job] = free.earned, jobs.rate[free.rows]
    base = at_rate.copy()
    steps = steps.take(scaled > 0)
    while len(steps.rows):
        rise, run = steps.earned - at_worth[steps.job], steps.scaled - at_use[steps.job]
        ahead = (rise > 0) & (run > 0)
        if not ahead.all():
            steps, rise, run = steps.take(ahead), rise[ahead], run[ahead]
            continue
        slope = rise / run
        steepest = np.maximum.reduceat(slope, starts(steps.job))
        as_steep = slope >= _of_each(steepest, steps.job) * (1.0 - _LEVEL)
        at = _highest(steps.job, np.where(as_steep, steps.scaled, 0.0))
        corner = steps.take(at)
        owner = corner.job
        uses = jobs.uses[:, corner.rows] - at_uses[:, owner]
        rate = jobs.rate[corner.rows]
        gained = np.maximum(rise[at] - (kept[corner.rows] - at_kept[owner]), 0.0)
        parts.append((owner, rank_of(slope[at]), gained, rate - at_rate[owner], *uses))
        at_use[owner], at_worth[owner] = corner.scaled, corner.earned
        at_kept[owner] = kept[corner.rows]
        at_rate[owner], at_uses[:, owner] = rate, jobs.uses[:, corner.rows]
    columns = np.concatenate([np.empty((4 + limits, 0)), *map(np.array, parts)], axis=1)
    columns = columns[:, np.lexsort((columns[0], -columns[1]))]
    return Segments(
        job=columns[0].astype(np.int64),
        rank=columns[1],
        surplus=columns[2],
        rate=columns[3],
        uses=columns[4:],
        base_rate=base,
    )


def _kept(jobs: Fluid, held_scaled: FloatArray, scaled: FloatArray) -> FloatArray:
    """Return what of keeping its place each allocation saves its job, $ per second, (D,)."""
    job = jobs.job
    share = kept_share(held_scaled[job], jobs.starting_share[job], scaled)
    kept: FloatArray = jobs.keeping_usd_per_second[job] * share
    return kept


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """Allocations that may be the next on a hull, those of each job together."""

    rows: IntArray
    job: IntArray
    scaled: FloatArray
    earned: FloatArray

    def take(self, which: BoolArray | IntArray) -> _Steps:
        return _Steps(self.rows[which], self.job[which], self.scaled[which], self.earned[which])


def starts(job: IntArray) -> IntArray:
    """Where the rows of each job begin, whose rows are together."""
    if not len(job):
        return job
    return np.concatenate([[0], np.flatnonzero(job[1:] != job[:-1]) + 1])


def _of_each(values: FloatArray, job: IntArray) -> FloatArray:
    """Those of the jobs that have rows, beside each of these."""
    counts = np.diff(starts(job), append=len(job))
    return np.repeat(values, counts)


def _highest(job: IntArray, level: FloatArray) -> IntArray:
    """Of each job the first row of its highest level; jobs together."""
    most = _of_each(np.maximum.reduceat(level, starts(job)), job)
    rows = np.flatnonzero(level == most)
    return rows[starts(job[rows])]
