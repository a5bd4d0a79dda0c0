"""Pruning of a wish to the candidates that may matter where limits bind.

A job of a large fleet may have hundreds of candidates with all their draws, and all wishes are in
memory at once. Where limits bind, a job gets a candidate of highest surplus for its use of one
limit, at some price of progress. All other candidates are dropped.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autoscaler.economics.supply import IntArray
from autoscaler.economics.wishes import Wish
from autoscaler.goodput.throughput import FloatArray

# Prices of progress to consider, as multiples of the job's lowest: scarcity raises the price.
TIMES_BEST = (1.0, 1.5, 2.5, 5.0, 20.0)


def narrowed(wish: Wish) -> Wish:
    """Return a wish with the held, the wished, and all possibly best candidates."""
    candidates = wish.at.candidates
    if wish.aim.stages is not None or not wish.eligible.any():
        return wish
    chosen = np.zeros(len(candidates), dtype=np.bool_)
    chosen[[index for index in (candidates.held, wish.target) if index is not None]] = True
    (open_candidates,) = np.nonzero(wish.eligible)
    price, rate = candidates.usd_per_second[open_candidates], candidates.rate[open_candidates]
    lowest_price = float(((price + wish.bid) / rate).min())
    for times in TIMES_BEST:
        surplus = times * lowest_price * rate - price
        for limit_use in candidates.uses[:, open_candidates]:
            chosen[open_candidates[_rising(limit_use, surplus)]] = True
    return _only(wish, np.flatnonzero(chosen))


def _rising(use: FloatArray, worth: FloatArray) -> IntArray:
    """Return the indices of candidates worth more than all that use no more."""
    order = np.lexsort((-worth, use))
    before = np.concatenate([[-np.inf], np.maximum.accumulate(worth[order])[:-1]])
    rising: IntArray = order[worth[order] > before]
    return rising


def _only(wish: Wish, kept: IntArray) -> Wish:
    candidates = wish.at.candidates.only(kept)
    target = None if wish.target is None else int(np.searchsorted(kept, wish.target))
    return replace(
        wish,
        at=replace(wish.at, candidates=candidates),
        target=target,
        eligible=wish.eligible[kept],
        expected_usd=wish.expected_usd[kept],
        cost=wish.cost[:, kept],
    )
