"""Fluid prices of many jobs as arrays: `finish_prices`, faster from about 50 jobs on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.economics.scarcity.fluid import kept_share, rank_of, settled
from autoscaler.economics.scarcity.fluid_run import Segments
from autoscaler.economics.supply.supply import BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray

# Relative difference of slopes below which two steps of a hull are merged.
_LEVEL = 1e-12


@dataclass(frozen=True, eq=False)
class FluidJobs:
    """n jobs as arrays, with their D allocations grouped by job; R is the number of limits.

    Attributes:
        value_of_time: of each job, $ per second, (n,).
        work: useful examples left of each job, (n,).
        job: job of each allocation, rising from 0 without a gap, (D,).
        usd_per_second: price of each allocation, (D,).
        rate: useful examples a second on each allocation, (D,).
        uses: use of each limit by each allocation, (R, D).
        held_uses: use of each limit by held allocations, 0 if nothing is held, (R, n).
        keeping_usd_per_second: saved by each job by keeping what it holds, (n,).
        starting_share: share of held instances that do not train yet, (n,).
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
        """Index of each job's first allocation, (n,)."""
        return starts(self.job)


def fluid_prices(jobs: FluidJobs, maximum: FloatArray) -> FloatArray:
    """Return the prices of limits when each job finishes, (n, R), as `finish_prices`."""
    if not len(jobs.work):
        return np.zeros((0, len(maximum)))
    return settled(
        jobs.work,
        maximum,
        lambda prices: _values_of_progress(jobs, prices),
        lambda values: _segments(jobs, values, maximum),
    )


def _values_of_progress(jobs: FluidJobs, prices: FloatArray) -> FloatArray:
    paid = jobs.usd_per_second.copy()
    for price, use in zip(prices.T, jobs.uses, strict=True):
        paid += price[jobs.job] * use
    paid += jobs.value_of_time[jobs.job]
    lowest_price: FloatArray = np.minimum.reduceat(paid / jobs.rate, jobs.first)
    return lowest_price


def _segments(jobs: FluidJobs, values: FloatArray, maximum: FloatArray) -> Segments:
    """Return the steps of all jobs' upper hulls of surplus over scaled use.

    Scaled use is the sum of the shares of all limits. A hull begins with nothing, or with the best
    allocation that uses no limit, and follows the highest worth per unit of use.
    """
    count, limits = len(jobs.work), len(maximum)
    at_use, at_worth, at_rate = np.zeros(count), np.zeros(count), np.zeros(count)
    at_kept = np.zeros(count)
    at_uses = np.zeros((limits, count))
    parts: list[tuple[NDArray[Any], ...]] = []
    earned = values[jobs.job] * jobs.rate - jobs.usd_per_second
    unit = 1.0 / np.maximum(maximum, 1e-12)[:, None]
    all_scaled = (jobs.uses * unit).sum(axis=0)
    saved_usd_per_second = _saved_by_keeping(jobs, (jobs.held_uses * unit).sum(axis=0), all_scaled)
    rows = np.flatnonzero(earned + saved_usd_per_second > 0)
    scaled = all_scaled[rows]
    steps = _Steps(rows, jobs.job[rows], scaled, (earned + saved_usd_per_second)[rows])
    free_steps = steps.take(scaled <= 0)
    if len(free_steps.rows):
        free_steps = free_steps.take(_highest_rows(free_steps.job, free_steps.earned))
        at_worth[free_steps.job], at_rate[free_steps.job] = (
            free_steps.earned,
            jobs.rate[free_steps.rows],
        )
    base = at_rate.copy()
    steps = steps.take(scaled > 0)
    while len(steps.rows):
        rise, run = steps.earned - at_worth[steps.job], steps.scaled - at_use[steps.job]
        is_ahead = (rise > 0) & (run > 0)
        if not is_ahead.all():
            steps, rise, run = steps.take(is_ahead), rise[is_ahead], run[is_ahead]
            continue
        slope = rise / run
        steepest = np.maximum.reduceat(slope, starts(steps.job))
        as_steep = slope >= _repeated(steepest, steps.job) * (1.0 - _LEVEL)
        corners = _highest_rows(steps.job, np.where(as_steep, steps.scaled, 0.0))
        corner = steps.take(corners)
        owner = corner.job
        uses = jobs.uses[:, corner.rows] - at_uses[:, owner]
        rate = jobs.rate[corner.rows]
        gained = np.maximum(
            rise[corners] - (saved_usd_per_second[corner.rows] - at_kept[owner]), 0.0
        )
        parts.append((owner, rank_of(slope[corners]), gained, rate - at_rate[owner], *uses))
        at_use[owner], at_worth[owner] = corner.scaled, corner.earned
        at_kept[owner] = saved_usd_per_second[corner.rows]
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


def _saved_by_keeping(jobs: FluidJobs, held_scaled: FloatArray, scaled: FloatArray) -> FloatArray:
    """Return the displacement cost that each allocation saves its job, $ per second, (D,)."""
    job = jobs.job
    share = kept_share(held_scaled[job], jobs.starting_share[job], scaled)
    saved_usd_per_second: FloatArray = jobs.keeping_usd_per_second[job] * share
    return saved_usd_per_second


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """Allocations that may follow next on a hull, grouped by job."""

    rows: IntArray
    job: IntArray
    scaled: FloatArray
    earned: FloatArray

    def take(self, index: BoolArray | IntArray) -> _Steps:
        return _Steps(self.rows[index], self.job[index], self.scaled[index], self.earned[index])


def starts(job: IntArray) -> IntArray:
    """Return the index of each job's first row, for rows grouped by job."""
    if not len(job):
        return job
    return np.concatenate([[0], np.flatnonzero(job[1:] != job[:-1]) + 1])


def _repeated(values: FloatArray, job: IntArray) -> FloatArray:
    """Repeat the values of jobs with rows for each of their rows."""
    counts = np.diff(starts(job), append=len(job))
    return np.repeat(values, counts)


def _highest_rows(job: IntArray, level: FloatArray) -> IntArray:
    """Return each job's first row of its highest level, for rows grouped by job."""
    highest = _repeated(np.maximum.reduceat(level, starts(job)), job)
    rows = np.flatnonzero(level == highest)
    return rows[starts(job[rows])]
