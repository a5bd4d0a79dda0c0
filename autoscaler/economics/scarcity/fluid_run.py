"""Fluid run: jobs run to their ends as if instances were divisible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.economics.supply.supply import BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray

# Number of phases of a run: with more jobs, several finish at once, since prices change little.
_PHASES = 32
# Number of jobs up to which loops over numbers are faster than arrays.
_FEW = 64


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """D steps along the envelopes of all n jobs, sorted by worth; R is the number of limits.

    Attributes:
        job: job of each step, (D,).
        rank: rank by which the steps are sorted, (D,).
        surplus: added by the step, $ per second, (D,).
        rate: useful examples a second added by the step, (D,).
        uses: use of each limit added by the step, (R, D).
        base_rate: useful examples a second of each job without using any limit, (n,).
    """

    job: IntArray
    rank: FloatArray
    surplus: FloatArray
    rate: FloatArray
    uses: FloatArray
    base_rate: FloatArray


# One step: its job, and the surplus, rate and uses of limits that it adds.
_Step = tuple[int, float, float, list[float]]


def run_to_completion(work: FloatArray, segments: Segments, maximum: FloatArray) -> FloatArray:
    """Run all jobs to their ends and return the prices when each finishes, (n, R).

    Prices are in $ per second of a unit of each limit.

    Args:
        work: useful examples left of each of n jobs, (n,).
        segments: steps along the envelopes.
        maximum: maximum of each limit, (R,).
    """
    run = _run_few if len(work) <= _FEW else _run_many
    return run(work, segments, maximum)


def _run_few(work: FloatArray, segments: Segments, maximum: FloatArray) -> FloatArray:
    """Compute exactly the result of `_run_many` with loops over numbers."""
    uses: list[list[float]] = segments.uses.T.tolist()
    numbers = (segments.job.tolist(), segments.surplus.tolist(), segments.rate.tolist())
    queue: list[_Step] = list(zip(*numbers, uses, strict=True))
    left, base, most = work.tolist(), segments.base_rate.tolist(), maximum.tolist()
    prices = [[0.0] * len(most)] * len(left)
    active = set(range(len(left)))
    while active:
        queue = [step for step in queue if step[0] in active]
        rate, present_prices = _fill_few(queue, base, most)
        for job in active:
            prices[job] = present_prices
        seconds = {job: left[job] / rate[job] for job in active if rate[job] > 0}
        if not seconds:
            break
        together = min(max(1, len(left) // _PHASES), len(seconds))
        step_seconds = sorted(seconds.values())[together - 1]
        for job in active:
            left[job] -= rate[job] * step_seconds
        active -= {job for job, job_seconds in seconds.items() if job_seconds <= step_seconds}
    return np.array(prices, dtype=np.float64).reshape(len(left), len(most))


def _fill_few(
    queue: Sequence[_Step], base: Sequence[float], maximum: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Compute the result of `_fill` for the steps of active jobs."""
    rate, prices, room = list(base), [0.0] * len(maximum), list(maximum)
    while queue:
        total, fitting, added = _fitting_steps(queue, room)
        for job, more in added.items():
            rate[job] += more
        if fitting == len(queue):
            break
        if fitting:
            room = [max(left - used, 0.0) for left, used in zip(room, total, strict=True)]
        job, surplus, speed, uses = queue[fitting]
        shares = [
            left / use if use > 0 else math.inf for left, use in zip(room, uses, strict=True)
        ]
        share = min(shares)
        full = shares.index(share)
        rate[job] += share * speed
        prices[full] = surplus / uses[full]
        room = [max(left - share * use, 0.0) for left, use in zip(room, uses, strict=True)]
        queue = _still_open_few(queue[fitting:], full)
    return rate, prices


def _fitting_steps(
    queue: Sequence[_Step], room: Sequence[float]
) -> tuple[list[float], int, dict[int, float]]:
    """Return the total uses of the leading steps that fit, their number, and added rates.

    Rates are by job, in useful examples a second.
    """
    limits_left = [left * (1.0 + 1e-12) for left in room]
    total, added = [0.0] * len(room), dict[int, float]()
    for place, (job, _, speed, uses) in enumerate(queue):
        after = [used + use for used, use in zip(total, uses, strict=True)]
        if any(used > limit for used, limit in zip(after, limits_left, strict=True)):
            return total, place, added
        total = after
        added[job] = added.get(job, 0.0) + speed
    return total, len(queue), added


def _still_open_few(queue: Sequence[_Step], full: int) -> list[_Step]:
    """Compute the result of `_still_open` for a list of steps."""
    stopped: set[int] = set()
    open_steps = []
    for step in queue:
        if step[3][full] > 0:
            stopped.add(step[0])
        elif step[0] not in stopped:
            open_steps.append(step)
    return open_steps


def _run_many(work: FloatArray, segments: Segments, maximum: FloatArray) -> FloatArray:
    """Compute the result of `run_to_completion` for all jobs and steps at once."""
    count = len(work)
    left = work
    active = np.ones(count, dtype=np.bool_)
    prices = np.zeros((count, len(maximum)))
    while active.any():
        rate, present_prices = _fill(segments, active, maximum)
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
    segments: Segments, active: BoolArray, maximum: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Assign the limits to the steps of active jobs by rank; return rates (n,) and prices (R,)."""
    rate = np.where(active, segments.base_rate, 0.0)
    prices = np.zeros(len(maximum))
    room = maximum.copy()
    (queue,) = np.nonzero(active[segments.job])
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
