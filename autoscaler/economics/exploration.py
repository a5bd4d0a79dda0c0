"""Choosing without knowing: the way back, and the first start.

Nothing here is for what can't be undone: deadlines and budgets count on quantiles instead.
"""

from __future__ import annotations

import numpy as np

from autoscaler.economics.candidates import Candidates
from autoscaler.economics.supply import BoolArray, IntArray
from autoscaler.economics.switching import WaysOn
from autoscaler.goodput.throughput import FloatArray

# Between two sizes that were both measured, a change must be for the better in so many draws.
SURE_SHARE = 0.6
# Of what may turn out best after a look, so many are looked at.
_WAYS_ON = 6


def expected_cost(candidates: Candidates, cost: FloatArray, by_way_of: FloatArray) -> FloatArray:
    """V of each candidate, $ until the work is done, (A,): what to minimise.

    The mean of J; for a size that was not measured, of what it may cost or going on from there,
    draw by draw: ``mean_k min(J_k(b), J_k(by way of b))``. A purchase can be undone.

    Args:
        candidates: A of them.
        cost: J, (K, A).
        by_way_of: J of going there for a look and on to one of `ways_on`, (K, A).
    """
    return _mean(np.where(candidates.measured, cost, np.minimum(cost, by_way_of)))


def ways_on(candidates: Candidates, cost: FloatArray) -> WaysOn:
    """Where to after a look at a size: back to what is held.

    Where nothing is held, on to what is best of what was measured. Where nothing was, to what
    turns out best of all: the first look tells most of every size.
    """
    if not candidates.allowed.any():
        return WaysOn(np.zeros(0, dtype=np.int64))
    if candidates.held is not None:
        return WaysOn(np.array([candidates.held]))
    known = candidates.allowed & candidates.measured
    if known.any():
        return WaysOn(np.array([np.argmin(np.where(known, cost.mean(axis=0), np.inf))]))
    return WaysOn(_best_of_draws(cost, candidates.allowed))


def _best_of_draws(cost: FloatArray, among: BoolArray) -> IntArray:
    """Those that are best in most draws."""
    best, draws = np.unique(np.where(among, cost, np.inf).argmin(axis=1), return_counts=True)
    most: IntArray = best[np.argsort(-draws, kind="stable")[:_WAYS_ON]]
    return most


def surely_better(candidates: Candidates, cost: FloatArray) -> BoolArray:
    """Where a change from what is held would not rest on chance, (A,).

    Between measured sizes it must pay in `SURE_SHARE` of the draws, the same for both. `cost` is
    as in `expected_cost`.
    """
    held = candidates.held
    if held is None or not candidates.measured[held]:
        return np.ones(len(candidates), dtype=np.bool_)
    share: FloatArray = (cost < cost[:, [held]]).mean(axis=0)
    sure: BoolArray = np.logical_or(share >= SURE_SHARE, ~candidates.measured)
    return sure


def worth_starting_on(candidates: Candidates, value_of_time: float) -> BoolArray:
    """What a job may start on of which nothing was measured, (A,); something must be allowed.

    The fewest instances of the cheapest, and of those dearer by less than waiting on the cheapest
    costs: buying one of them wrongly is then the smaller loss.
    """
    few = fewest(candidates)
    price = candidates.usd_per_second
    dearer = price - price[few].min()
    worth: BoolArray = few & np.logical_or(dearer <= 0, dearer < value_of_time)
    return worth


def fewest(candidates: Candidates) -> BoolArray:
    """Those of the fewest instances that are allowed, (A,)."""
    instances, allowed = candidates.sizes.instances, candidates.allowed
    few: BoolArray = allowed & (instances == instances[allowed].min())
    return few


def _mean(cost: FloatArray) -> FloatArray:
    mean: FloatArray = cost.mean(axis=0)
    return mean
