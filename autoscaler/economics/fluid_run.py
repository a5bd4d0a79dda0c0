"""A fluid run: jobs to their ends, as if instances could be divided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.economics.supply import BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray

# With more jobs than this several finish at once: the price moves little with each.
_PHASES = 32
# Up to so many jobs, loops over numbers are faster than arrays.
_FEW = 64


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Steps along the envelopes of all jobs, the worthiest first; D of them.

    Attributes:
        job: whose step it is, (D,).
        rank: by which they are sorted, (D,).
        surplus: $ per second that the step adds, (D,).
        rate: useful examples a second that it adds, (D,).
        uses: of each limit that it adds, (R, D).
        base_rate: what each job has without using any limit, (n,).
    """

    job: IntArray
    rank: FloatArray
    surplus: FloatArray
    rate: FloatArray
    uses: FloatArray
    base_rate: FloatArray


# Of one step: its job, the surplus and the rate that it adds, and the use of each limit.
_Step = tuple[int, float, float, list[float]]


def run_out(work: FloatArray, segments: Segments, maximum: FloatArray) -> FloatArray:
    """Run to the end of all jobs; the prices when each finishes, (n, R).

    Args:
        work: useful examples left to each of n jobs, (n,).
        segments: steps along their envelopes.
        maximum: of each limit, (R,).
    """
    run = _run_few if len(work) <= _FEW else _run_many
    return run(work, segments, maximum)


def _run_few(work: FloatArray, segments: Segments, maximum: FloatArray) -> FloatArray:
    """As `_run_many`, to the last digit: number by number."""
    uses: list[list[float]] = segments.uses.T.tolist()
    numbers = (segments.job.tolist(), segments.surplus.tolist(), segments.rate.tolist())
    queue: list[_Step] = list(zip(*numbers, uses, strict=True))
    left, base, most = work.tolist(), segments.base_rate.tolist(), maximum.tolist()
    prices = [[0.0] * len(most)] * len(left)
    active = set(range(len(left)))
    while active:
        queue = [step for step in queue if step[0] in active]
        rate, now = _fill_few(queue, base, most)
        for job in active:
            prices[job] = now
        seconds = {job: left[job] / rate[job] for job in active if rate[job] > 0}
        if not seconds:
            break
        together = min(max(1, len(left) // _PHASES), len(seconds))
        step_seconds = sorted(seconds.values())[together - 1]
        for job in active:
            left[job] -= rate[job] * step_seconds
        active -= {job for job, own_seconds in seconds.items() if own_seconds <= step_seconds}
    return np.array(prices, dtype=np.float64).reshape(len(left), len(most))


def _fill_few(
    queue: Sequence[_Step], base: Sequence[float], maximum: Sequence[float]
) -> tuple[list[float], list[float]]:
    """As `_fill`, of the steps of active jobs."""
    rate, prices, room = list(base), [0.0] * len(maximum), list(maximum)
    while queue:
        total, first, added = _given(queue, room)
        for job, more in added.items():
            rate[job] += more
        if first == len(queue):
            break
        if first:
            room = [max(left - taken, 0.0) for left, taken in zip(room, total, strict=True)]
        job, surplus, speed, uses = queue[first]
        shares = [
            left / use if use > 0 else math.inf for left, use in zip(room, uses, strict=True)
        ]
        share = min(shares)
        full = shares.index(share)
        rate[job] += share * speed
        prices[full] = surplus / uses[full]
        room = [max(left - share * use, 0.0) for left, use in zip(room, uses, strict=True)]
        queue = _open_few(queue[first:], full)
    return rate, prices


def _given(
    queue: Sequence[_Step], room: Sequence[float]
) -> tuple[list[float], int, dict[int, float]]:
    """What the steps that have room use, how many they are, and the rates that they add by job."""
    most = [left * (1.0 + 1e-12) for left in room]
    total, added = [0.0] * len(room), dict[int, float]()
    for place, (job, _, speed, uses) in enumerate(queue):
        after = [taken + use for taken, use in zip(total, uses, strict=True)]
        if any(taken > limit for taken, limit in zip(after, most, strict=True)):
            return total, place, added
        total = after
        added[job] = added.get(job, 0.0) + speed
    return total, len(queue), added


def _open_few(queue: Sequence[_Step], full: int) -> list[_Step]:
    """As `_still_open`."""
    stopped: set[int] = set()
    kept = []
    for step in queue:
        if step[3][full] > 0:
            stopped.add(step[0])
        elif step[0] not in stopped:
            kept.append(step)
    return kept


def _run_many(work: FloatArray, segments: Segments, maximum: FloatArray) -> FloatArray:
    """As `run_out`, all jobs and steps at once."""
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
