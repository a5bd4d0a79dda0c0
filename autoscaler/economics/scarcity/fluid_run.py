"""Fluid run: jobs run to their ends as if instances were divisible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.economics.supply.supply import BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray

# Number of phases of a run: with more jobs, several finish at once, since prices change little.
_PHASES = 32


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
