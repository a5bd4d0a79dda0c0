"""Choices among unmeasured sizes: the option to go back, and the first start.

This optimism applies only to choices that can be undone. Deadlines and budgets use quantiles.
"""

from __future__ import annotations

import numpy as np

from autoscaler.economics.allocation.candidates import Candidates
from autoscaler.economics.choice.switching import FallbackAllocations
from autoscaler.economics.supply.supply import BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray

# Share of draws in which a change between two measured sizes must cost less.
SURE_SHARE = 0.6
# Number of candidates to go on to after a measurement, where nothing was measured before.
_MOST_WAYS_ON = 6


def expected_cost(
    candidates: Candidates, cost: FloatArray, via_measurement: FloatArray
) -> FloatArray:
    """Return V of each candidate, $ until the work is done, to be minimised, (A,).

    A measured size has the mean of J over the draws. An unmeasured one may be left again after a
    measurement: ``V(b) = mean_k min(J_k(b), J_k(measure at b, then go on elsewhere))``.

    Args:
        candidates: A candidates.
        cost: J, cost of the work on each candidate, (K, A).
        via_measurement: J of a measurement at each candidate, followed by a change to one of
            `fallback_allocations`, (K, A).
    """
    return _mean_over_draws(np.where(candidates.measured, cost, np.minimum(cost, via_measurement)))


def fallback_allocations(candidates: Candidates, cost: FloatArray) -> FallbackAllocations:
    """Return the candidates to go on to after a measurement: the held one, if any.

    If nothing is held, go on to the measured candidate of least mean cost. If nothing was
    measured, go on to any that is best in many draws: the first measurement informs about every
    size. `cost` is J, (K, A).
    """
    if not candidates.allowed.any():
        return FallbackAllocations(np.zeros(0, dtype=np.int64))
    if candidates.held is not None:
        return FallbackAllocations(np.array([candidates.held]))
    is_measured = candidates.allowed & candidates.measured
    if is_measured.any():
        return FallbackAllocations(
            np.array([np.argmin(np.where(is_measured, cost.mean(axis=0), np.inf))])
        )
    return FallbackAllocations(_best_of_draws(cost, candidates.allowed))


def _best_of_draws(cost: FloatArray, allowed: BoolArray) -> IntArray:
    """Return the candidates that are cheapest in the largest numbers of draws."""
    best, draws = np.unique(np.where(allowed, cost, np.inf).argmin(axis=1), return_counts=True)
    most_often_best: IntArray = best[np.argsort(-draws, kind="stable")[:_MOST_WAYS_ON]]
    return most_often_best


def surely_better(candidates: Candidates, cost: FloatArray) -> BoolArray:
    """Return the candidates that a change from the held one may target, (A,).

    A measured candidate must have the lower J in at least `SURE_SHARE` of the draws, if the held
    one is measured too. All other candidates may be targets. `cost` is J, (K, A).
    """
    held = candidates.held
    if held is None or not candidates.measured[held]:
        return np.ones(len(candidates), dtype=np.bool_)
    share: FloatArray = (cost < cost[:, [held]]).mean(axis=0)
    sure: BoolArray = np.logical_or(share >= SURE_SHARE, ~candidates.measured)
    return sure


def worth_starting_on(candidates: Candidates, value_of_time: float) -> BoolArray:
    """Return the candidates for a job without measurements, (A,); some must be allowed.

    They have the fewest instances, and cost less per second above the cheapest than waiting on it
    does. Buying one of them wrongly is then the smaller loss. `value_of_time` is in $ per second.
    """
    few = fewest(candidates)
    price = candidates.usd_per_second
    dearer = price - price[few].min()
    is_worth_it: BoolArray = few & np.logical_or(dearer <= 0, dearer < value_of_time)
    return is_worth_it


def fewest(candidates: Candidates) -> BoolArray:
    """Return which allowed candidates have the fewest instances, (A,)."""
    instances, allowed = candidates.sizes.instances, candidates.allowed
    few: BoolArray = allowed & (instances == instances[allowed].min())
    return few


def _mean_over_draws(cost: FloatArray) -> FloatArray:
    mean: FloatArray = cost.mean(axis=0)
    return mean
