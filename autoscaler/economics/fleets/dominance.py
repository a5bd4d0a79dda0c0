"""Pruning of a demand to the candidates that may matter where limits bind.

A job of a large fleet may have hundreds of candidates with all their draws, and all demands are in
memory at once. Where limits bind, a job gets a candidate of highest surplus for its use of one
limit, at some price of progress. All other candidates are dropped.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autoscaler.economics.choice.demands import Demand
from autoscaler.economics.supply.supply import IntArray
from autoscaler.goodput.throughput import FloatArray

# Prices of progress to consider, as multiples of the job's lowest: scarcity raises the price.
TIMES_BEST = (1.0, 1.5, 2.5, 5.0, 20.0)


def prune_dominated(demand: Demand) -> Demand:
    """Return a demand with the held, the wished, and all possibly best candidates."""
    candidates = demand.at.candidates
    if demand.requirement.stages is not None or not demand.eligible.any():
        return demand
    chosen = np.zeros(len(candidates), dtype=np.bool_)
    chosen[[index for index in (candidates.held, demand.target) if index is not None]] = True
    (open_candidates,) = np.nonzero(demand.eligible)
    price, rate = candidates.usd_per_second[open_candidates], candidates.rate[open_candidates]
    lowest_price = float(((price + demand.bid) / rate).min())
    for times in TIMES_BEST:
        surplus = times * lowest_price * rate - price
        for limit_use in candidates.uses[:, open_candidates]:
            chosen[open_candidates[_rising(limit_use, surplus)]] = True
    return _only(demand, np.flatnonzero(chosen))


def _rising(use: FloatArray, worth: FloatArray) -> IntArray:
    """Return the indices of candidates worth more than all that use no more."""
    order = np.lexsort((-worth, use))
    before = np.concatenate([[-np.inf], np.maximum.accumulate(worth[order])[:-1]])
    rising: IntArray = order[worth[order] > before]
    return rising


def _only(demand: Demand, kept: IntArray) -> Demand:
    candidates = demand.at.candidates.only(kept)
    target = None if demand.target is None else int(np.searchsorted(kept, demand.target))
    return replace(
        demand,
        at=replace(demand.at, candidates=candidates),
        target=target,
        eligible=demand.eligible[kept],
        expected_usd=demand.expected_usd[kept],
        cost=demand.cost[:, kept],
    )
