"""What an allocation is worth to a job beyond its price, where jobs compete for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.economics.supply import BoolArray
from autoscaler.economics.switching import Ground, cost_to_finish, done_meanwhile, switches
from autoscaler.goodput.throughput import FloatArray

# What is about to end is worth keeping for this long.
LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Worth:
    """What everything is worth to one job, in $ per second.

    Attributes:
        surplus: of each candidate, changing to it included, (A,).
        nothing: of holding nothing.
    """

    surplus: FloatArray
    nothing: float


def worth(
    at: Ground, among: BoolArray, value_of_time: float, finish_prices: FloatArray, work: float
) -> Worth:
    """What everything is worth to a job that pays the prices of its own finish for the limits.

    ``S(b) = v + sum_r mu_r(T) u_r(b) - (J(b) - min J) / seconds(b)``: at the best b what a second
    without it would cost, elsewhere less by what it costs more to finish there, for each second
    that this takes. J has the prices of the limits and the costs of changing in it. Without those
    costs it is ``lambda G(b) - p(b)`` with lambda the least ``(v + p + sum_r mu_r(T) u_r) / G``.

    Args:
        at: from where it would change.
        among: which candidates it may have, (A,); at least one.
        value_of_time: v, $ per second.
        finish_prices: mu(T), what a unit of each limit is worth per second when it finishes, (R,).
        work: useful examples over which its choice counts.
    """
    candidates = at.candidates
    cost = cost_to_finish(at, value_of_time, work, finish_prices).mean(axis=0)
    taken, rate, held = at.from_held(value_of_time), candidates.rate, candidates.held
    done = 0.0 if held is None else done_meanwhile(float(rate[held]), taken, work)
    seconds = taken.ready_seconds + taken.pause_seconds + (work - done) / rate
    beyond = (cost - cost[among].min()) / np.maximum(seconds, LEAST_SECONDS)
    surplus = value_of_time + finish_prices @ candidates.uses - beyond
    return Worth(surplus, _of_nothing(at, among, surplus, work))


def _of_nothing(at: Ground, among: BoolArray, surplus: FloatArray, work: float) -> float:
    """Nothing, for a job that holds nothing.

    For another less than what it holds is worth, and less than the best that it might have, by
    what coming back costs: where no limit is in the way, it is never dropped.
    """
    candidates = at.candidates
    held = candidates.held
    if held is None:
        return 0.0
    back = switches(at, None, np.array([held]))
    back_usd = float(back.boot_usd[0] + back.pause_seconds[0] * candidates.usd_per_second[held])
    seconds = max(work / float(candidates.rate[held]), LEAST_SECONDS)
    kept = float(surplus[held]) if among[held] else 0.0
    return min(0.0, kept, float(surplus[among].max())) - back_usd / seconds
