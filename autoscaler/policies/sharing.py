"""What each job gets of limits that do not bear what all of them wish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.fluid import FluidJob, finish_prices
from autoscaler.economics.supply import IntArray, Supply
from autoscaler.economics.surplus import (
    surplus_over_horizon,
    value_of_progress,
    worth_of_nothing,
)
from autoscaler.economics.wishes import Why, Wish
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.program import Award, Bid, Effort, award


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """What one job gets, and what everything was worth to it.

    Attributes:
        wish: what it would have had by itself.
        target: the candidate that it gets.
        value: of each candidate, $ per second, (A,).
        nothing: the value of holding nothing, $ per second.
    """

    wish: Wish
    target: int | None
    value: FloatArray
    nothing: float

    def worth(self, index: int | None) -> float:
        """$ per second of a candidate; None is nothing."""
        return self.nothing if index is None else float(self.value[index])


@dataclass(frozen=True, slots=True, eq=False)
class Sharing:
    """The shares of all jobs, by job, and the prices at which they were made."""

    shares: dict[str, Share]
    award: Award


def share_out(wishes: Sequence[Wish], supply: Supply, effort: Effort) -> Sharing:
    """The allocations of most surplus in all within the limits.

    Each job's progress has the value that it has at the job's own finish; what it holds is
    changed only for more surplus than the change costs. What a job holds unknown it keeps, as
    far as the limits bear it.
    """
    competing = [wish for wish in wishes if wish.eligible.any()]
    room = supply.maximum - supply.uses(kept_unknown(wishes, supply))
    fluid = [_fluid(wish) for wish in competing]
    prices = finish_prices(fluid, np.maximum(room, 0.0))
    offers = [_bid(wish, own) for wish, own in zip(competing, prices, strict=True)]
    made = award([bid for bid, _, _ in offers], room, effort)
    shares = {}
    for wish, choice, (bid, columns, value) in zip(competing, made.choices, offers, strict=True):
        target = None if choice is None else int(columns[choice])
        weight = wish.job.weight
        shares[wish.job.id] = Share(wish, target, value, bid.nothing / weight)
    return Sharing(shares, made)


def kept_unknown(wishes: Sequence[Wish], supply: Supply) -> list[Allocation]:
    """What is held unknown and can go on being held: in the order of jobs, while limits bear it."""
    kept: list[Allocation] = []
    for wish in wishes:
        held = wish.job.held
        if wish.why is Why.HOLDS_UNKNOWN and held is not None:
            if supply.bears(supply.uses([*kept, held])):
                kept.append(held)
    return kept


def _fluid(wish: Wish) -> FluidJob:
    every, which = wish.at.candidates, wish.eligible
    return FluidJob(
        value_of_time=wish.bid * wish.job.weight,
        work=wish.work,
        usd_per_second=every.usd_per_second[which],
        rate=every.rate[which],
        uses=every.uses[:, which],
    )


def _bid(wish: Wish, finish_price: FloatArray) -> tuple[Bid, IntArray, FloatArray]:
    """The job's bid on what it may hold, the candidates that its columns are, and all values."""
    every, which = wish.at.candidates, wish.eligible
    progress = value_of_progress(every, which, wish.bid, finish_price)
    value = surplus_over_horizon(wish.at, progress, wish.work)
    nothing = worth_of_nothing(wish.at, value, which, wish.work)
    (columns,) = np.nonzero(which)
    weight = wish.job.weight
    bid = Bid(weight * value[columns], every.uses[:, columns], weight * nothing)
    return bid, columns, value
