"""Fluid prices: the worth of a unit of each limit when each job finishes, mu_r(T_j).

A fluid run takes the present jobs to their ends as if instances were divisible. At each moment the
limits go to the steps of highest worth per unit, along the concave envelope of each job's surplus.
The first step that does not fit sets the price. Held instances rank higher by the cost of losing
them, or equal jobs would swap instances at every plan. A job's value of progress depends on the
price at its own finish, and that price depends on all values of progress. Damped passes find the
fixed point.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autoscaler.economics.supply.supply import BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray

_PASSES = 6
_DAMPING = 0.5
# Passes end when no value of progress changes by more than this share.
_SETTLED = 0.01
# Decimals of the logarithm of a step's worth; steps that differ less keep the order of the jobs.
_RANK_DIGITS = 9
# Relative difference of slopes below which two steps of a hull are merged.
_LEVEL = 1e-12
# Number of phases of a run: with more jobs, several finish at once, since prices change little.
_PHASES = 32


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


def finish_prices(jobs: FluidJobs, maximum: FloatArray) -> FloatArray:
    """Return mu_r(T_j), $ per second of a unit of limit r when job j finishes, (n, R).

    Args:
        jobs: n jobs with at least one allocation each.
        maximum: maximum of each limit, (R,).
    """
    prices = np.zeros((len(jobs.work), len(maximum)))
    if not len(jobs.work):
        return prices
    points = _points(jobs, maximum)
    values = _values_of_progress(jobs, prices)
    for _ in range(_PASSES):
        prices = run_to_completion(jobs.work, _segments(jobs, values, points), maximum)
        moved = _DAMPING * (_values_of_progress(jobs, prices) - values)
        values = values + moved
        if (np.abs(moved) <= _SETTLED * _DAMPING * values).all():
            break
    return prices


def starts(job: IntArray) -> IntArray:
    """Return the index of each job's first row, for rows grouped by job."""
    if not len(job):
        return job
    return np.concatenate([[0], np.flatnonzero(job[1:] != job[:-1]) + 1])


@dataclass(frozen=True, slots=True, eq=False)
class _Points:
    """P starts and allocations by scaled use, grouped by job; scaled use is the sum of shares.

    Attributes:
        job: job of each point, (P,); its first point is the start, without any use.
        row: allocation of each point, (P,); -1 for a start.
        scaled: scaled use of each point, rising within each job, (P,).
        saved_usd_per_second: displacement cost that each point saves its job, (P,).
        free: allocations without any use, grouped by job.
    """

    job: IntArray
    row: IntArray
    scaled: FloatArray
    saved_usd_per_second: FloatArray
    free: IntArray


def _points(jobs: FluidJobs, maximum: FloatArray) -> _Points:
    unit = 1.0 / np.maximum(maximum, 1e-12)[:, None]
    scaled, held = (jobs.uses * unit).sum(axis=0), (jobs.held_uses * unit).sum(axis=0)
    rows, count = np.flatnonzero(scaled > 0), len(jobs.work)
    job = np.concatenate([np.arange(count), jobs.job[rows]])
    use = np.concatenate([np.zeros(count), scaled[rows]])
    order = np.lexsort((use, job))
    job, use = job[order], use[order]
    share = _kept_share(held[job], jobs.starting_share[job], use)
    return _Points(
        job=job,
        row=np.concatenate([np.full(count, -1), rows])[order],
        scaled=use,
        saved_usd_per_second=jobs.keeping_usd_per_second[job] * share,
        free=np.flatnonzero(scaled <= 0),
    )


def _values_of_progress(jobs: FluidJobs, prices: FloatArray) -> FloatArray:
    paid = jobs.usd_per_second.copy()
    for price, use in zip(prices.T, jobs.uses, strict=True):
        paid += price[jobs.job] * use
    paid += jobs.value_of_time[jobs.job]
    lowest_price: FloatArray = np.minimum.reduceat(paid / jobs.rate, jobs.first)
    return lowest_price


def _segments(jobs: FluidJobs, values: FloatArray, points: _Points) -> Segments:
    """Return the steps of all jobs' upper hulls of surplus over scaled use.

    A hull begins with nothing, or with the best allocation that uses no limit.
    """
    earned = values[jobs.job] * jobs.rate - jobs.usd_per_second
    base_earned, base_rate = np.zeros(len(jobs.work)), np.zeros(len(jobs.work))
    free = points.free[earned[points.free] > 0]
    free = free[np.lexsort((-earned[free], jobs.job[free]))]
    free = free[starts(jobs.job[free])]
    base_earned[jobs.job[free]], base_rate[jobs.job[free]] = earned[free], jobs.rate[free]
    is_start = points.row < 0
    worth = np.where(is_start, base_earned[points.job], earned[points.row])
    corners = _hull(points.job, points.scaled, worth + points.saved_usd_per_second)
    job, row, is_start = points.job[corners], points.row[corners], is_start[corners]
    rate = np.where(is_start, base_rate[job], jobs.rate[row])
    uses = np.where(is_start, 0.0, jobs.uses[:, row])
    run = np.diff(points.scaled[corners])
    rise = np.diff((worth + points.saved_usd_per_second)[corners])
    steps = np.flatnonzero(job[1:] == job[:-1])
    steps = steps[np.argsort(-_rank_of(rise[steps] / run[steps]), kind="stable")]
    return Segments(
        job=job[steps],
        surplus=np.maximum(np.diff(worth[corners])[steps], 0.0),
        rate=np.diff(rate)[steps],
        uses=np.diff(uses, axis=1)[:, steps],
        base_rate=base_rate,
    )


def _hull(job: IntArray, use: FloatArray, worth: FloatArray) -> IntArray:
    """Return the indices of the corners of each job's rising upper hull, with its start.

    Points on or below the chord between their neighbours are dropped until none is left, and so
    are points that are worth no more than the one before.
    """
    corners = np.flatnonzero((worth > 0) | (use <= 0))
    while True:
        run, rise = np.diff(use[corners]), np.diff(worth[corners])
        steep = np.where(run > 0, rise / np.where(run > 0, run, 1.0), np.copysign(np.inf, rise))
        is_inside = job[corners[1:]] == job[corners[:-1]]
        before = np.where(is_inside, steep, np.inf)
        after = np.append(np.where(is_inside, steep, -np.inf)[1:], -np.inf)
        is_corner = (before > 0) & (before * (1.0 - _LEVEL) > after)
        is_corner |= ~is_inside
        if is_corner.all():
            return corners
        corners = corners[np.append(True, is_corner)]


def _rank_of(density: FloatArray) -> FloatArray:
    """Return the rank of steps by worth per unit of use, equal up to rounding errors."""
    return np.asarray(np.round(np.log(np.maximum(density, 1e-300)), _RANK_DIGITS))


def _kept_share(held: FloatArray, starting: FloatArray, use: FloatArray) -> FloatArray:
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


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """D steps along the envelopes of all n jobs, the worthiest first; R is the number of limits.

    Attributes:
        job: job of each step, (D,).
        surplus: added by the step, $ per second, (D,).
        rate: useful examples a second added by the step, (D,).
        uses: use of each limit added by the step, (R, D).
        base_rate: useful examples a second of each job without using any limit, (n,).
    """

    job: IntArray
    surplus: FloatArray
    rate: FloatArray
    uses: FloatArray
    base_rate: FloatArray


def run_to_completion(work: FloatArray, segments: Segments, maximum: FloatArray) -> FloatArray:
    """Run all jobs to their ends and return the prices when each finishes, (n, R).

    Prices are in $ per second of a unit of each limit.

    Args:
        work: useful examples left of each of n jobs, (n,).
        segments: steps along the envelopes.
        maximum: maximum of each limit, (R,).
    """
    count = len(work)
    left = work
    active = np.ones(count, dtype=np.bool_)
    prices = np.zeros((count, len(maximum)))
    steps = np.arange(len(segments.job))
    while active.any():
        steps = steps[active[segments.job[steps]]]
        rate, present_prices = _fill(segments, active, steps, maximum)
        prices[active] = present_prices
        if not (rate[active] > 0).any():
            break
        is_running = active & (rate > 0)
        seconds = np.where(is_running, left / np.where(is_running, rate, 1.0), np.inf)
        finishing = min(max(1, count // _PHASES), int(is_running.sum()))
        step = np.partition(seconds, finishing - 1)[finishing - 1]
        left = left - rate * step
        active = active & (seconds > step)
    return prices


def _fill(
    segments: Segments, active: BoolArray, queue: IntArray, maximum: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Assign the limits to the steps of active jobs by rank; return rates (n,) and prices (R,).

    `queue` are the indices of these steps.
    """
    rate = np.where(active, segments.base_rate, 0.0)
    prices = np.zeros(len(maximum))
    room = maximum.copy()
    while len(queue):
        total = np.cumsum(segments.uses[:, queue], axis=1)
        exceeds = (total > room[:, None] * (1.0 + 1e-12)).any(axis=0)
        fitting = int(np.argmax(exceeds)) if exceeds.any() else len(queue)
        fitting_steps = queue[:fitting]
        rate += np.bincount(segments.job[fitting_steps], segments.rate[fitting_steps], len(rate))
        if fitting == len(queue):
            break
        if fitting:
            room = np.maximum(room - total[:, fitting - 1], 0.0)
        step = int(queue[fitting])
        uses = segments.uses[:, step]
        shares = np.where(uses > 0, room / np.where(uses > 0, uses, 1.0), np.inf)
        full = int(np.argmin(shares))
        rate[segments.job[step]] += shares[full] * segments.rate[step]
        prices[full] = segments.surplus[step] / uses[full]
        room = np.maximum(room - shares[full] * uses, 0.0)
        queue = _still_open(segments, queue[fitting:], full)
    return rate, prices


def _still_open(segments: Segments, queue: IntArray, full: int) -> IntArray:
    """Return the steps left when limit `full` is used up.

    Steps that use the limit are dropped, and so are later steps of the same jobs.
    """
    (blocked,) = np.nonzero(segments.uses[full, queue] > 0)
    job = segments.job[queue]
    stops = np.full(len(segments.base_rate), len(queue))
    stops[job[blocked[::-1]]] = blocked[::-1]
    open_steps: IntArray = queue[np.arange(len(queue)) < stops[job]]
    return open_steps
