"""The fluid run of many jobs as arrays: `finish_prices`, faster from some 50 jobs on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.economics.fluid import settled
from autoscaler.economics.fluid_run import Segments
from autoscaler.economics.supply import BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray

# Steps of a hull whose slopes differ by less than this share are one.
_LEVEL = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Fluid:
    """n jobs as arrays: their D allocations in a row, those of each job together.

    `value_of_time` and `work` are (n,), `job`, `usd_per_second` and `rate` (D,), `uses` (R, D), as
    those of `FluidJob`; `job` says whose each is and rises from 0, without a gap.
    """

    value_of_time: FloatArray
    work: FloatArray
    job: IntArray
    usd_per_second: FloatArray
    rate: FloatArray
    uses: FloatArray

    @property
    def first(self) -> IntArray:
        """Where the allocations of each job begin, (n,)."""
        return np.flatnonzero(np.diff(self.job, prepend=-1))

    def take(self, which: BoolArray) -> Fluid:
        """Those allocations alone, of the same jobs."""
        return Fluid(
            self.value_of_time,
            self.work,
            self.job[which],
            self.usd_per_second[which],
            self.rate[which],
            self.uses[:, which],
        )


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
    earned = values[jobs.job] * jobs.rate - jobs.usd_per_second
    scaled = (jobs.uses / np.maximum(maximum, 1e-12)[:, None]).sum(axis=0)
    count, limits = len(jobs.work), len(maximum)
    at_use, at_worth, at_rate = np.zeros(count), np.zeros(count), np.zeros(count)
    at_uses = np.zeros((limits, count))
    parts: list[tuple[FloatArray, ...]] = []
    ahead = earned > 0
    free = _highest(jobs.job, np.where(ahead & (scaled <= 0), earned, 0.0), 0.0)
    at_worth[jobs.job[free]], at_rate[jobs.job[free]] = earned[free], jobs.rate[free]
    base = at_rate.copy()
    rows = np.flatnonzero(ahead & (scaled > 0))
    while True:
        job = jobs.job[rows]
        ahead = (scaled[rows] > at_use[job]) & (earned[rows] > at_worth[job])
        rows, job = rows[ahead], job[ahead]
        if not len(rows):
            break
        slope = (earned[rows] - at_worth[job]) / (scaled[rows] - at_use[job])
        steepest = np.full(count, -np.inf)
        first = np.flatnonzero(np.diff(job, prepend=-1))
        steepest[job[first]] = np.maximum.reduceat(slope, first)
        as_steep = slope >= steepest[job] * (1.0 - _LEVEL)
        corner = rows[_highest(job, np.where(as_steep, scaled[rows], 0.0), 0.0)]
        owner = jobs.job[corner]
        rise, run = earned[corner] - at_worth[owner], scaled[corner] - at_use[owner]
        uses = jobs.uses[:, corner] - at_uses[:, owner]
        parts.append((owner, rise / run, rise, jobs.rate[corner] - at_rate[owner], *uses))
        at_use[owner], at_worth[owner] = scaled[corner], earned[corner]
        at_rate[owner], at_uses[:, owner] = jobs.rate[corner], jobs.uses[:, corner]
    columns = np.concatenate([np.empty((4 + limits, 0)), *map(np.array, parts)], axis=1)
    columns = columns[:, np.lexsort((columns[0], -columns[1]))]
    return Segments(
        job=columns[0].astype(np.int64),
        density=columns[1],
        surplus=columns[2],
        rate=columns[3],
        uses=columns[4:],
        base_rate=base,
    )


def _highest(job: IntArray, level: FloatArray, above: float) -> IntArray:
    """Of each job the first row of the highest level, of those `above` that; jobs together."""
    if not len(job):
        return job
    first = np.flatnonzero(np.diff(job, prepend=-1))
    most = np.repeat(np.maximum.reduceat(level, first), np.diff([*first.tolist(), len(job)]))
    rows = np.flatnonzero((level == most) & (level > above))
    found: IntArray = rows[np.diff(job[rows], prepend=-1) != 0]
    return found
