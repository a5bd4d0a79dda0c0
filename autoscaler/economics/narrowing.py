"""A wish with only the candidates that could come to matter: what many jobs compete with.

A job of a large fleet may have hundreds of candidates, each with all its draws, and all wishes are
held at once. Where limits bind, it gets one that is worth most for what it uses of one of them, at
some price of its progress: the others are dropped.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autoscaler.economics.supply import IntArray
from autoscaler.economics.wishes import Wish
from autoscaler.goodput.throughput import FloatArray

# Prices of progress that are looked at, in that of the job's best by itself: scarcity raises it.
TIMES_BEST = (1.0, 1.5, 2.5, 5.0, 20.0)


def narrowed(wish: Wish) -> Wish:
    """The same with what it holds, what it wishes, and what might be best where limits bind."""
    every = wish.at.candidates
    if wish.aim.stages is not None or not wish.eligible.any():
        return wish
    chosen = np.zeros(len(every), dtype=np.bool_)
    chosen[[index for index in (every.held, wish.target) if index is not None]] = True
    (open_to_it,) = np.nonzero(wish.eligible)
    price, rate = every.usd_per_second[open_to_it], every.rate[open_to_it]
    least = float(((price + wish.bid) / rate).min())
    for times in TIMES_BEST:
        surplus = times * least * rate - price
        for use in every.uses[:, open_to_it]:
            chosen[open_to_it[_rising(use, surplus)]] = True
    return _only(wish, np.flatnonzero(chosen))


def _rising(use: FloatArray, worth: FloatArray) -> IntArray:
    """Indices of those that are worth more than all that use no more."""
    order = np.lexsort((-worth, use))
    before = np.concatenate([[-np.inf], np.maximum.accumulate(worth[order])[:-1]])
    rising: IntArray = order[worth[order] > before]
    return rising


def _only(wish: Wish, kept: IntArray) -> Wish:
    every = wish.at.candidates.only(kept)
    target = None if wish.target is None else int(np.searchsorted(kept, wish.target))
    return replace(
        wish,
        at=replace(wish.at, candidates=every),
        target=target,
        eligible=wish.eligible[kept],
        expected_usd=wish.expected_usd[kept],
        cost=wish.cost[:, kept],
    )
