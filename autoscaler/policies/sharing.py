"""What each job gets of limits that do not bear what all of them wish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.displacing import starting_share
from autoscaler.economics.fluid import FluidJob, finish_prices
from autoscaler.economics.supply import Supply
from autoscaler.economics.surplus import Worth, keeping_usd_per_second, worth
from autoscaler.economics.wishes import Why, Wish
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.contests import Holding, Standings
from autoscaler.policies.program import Award, Bid, Effort, award


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """What one job would have had by itself, and what everything is worth to it."""

    wish: Wish
    worth: Worth

    def value(self, index: int | None) -> float:
        """$ per second of a candidate; None is nothing."""
        return self.worth.nothing if index is None else float(self.worth.surplus[index])

    def use(self, index: int | None, limit: int) -> float:
        """What a candidate uses of a limit; None is nothing."""
        return 0.0 if index is None else float(self.wish.at.candidates.uses[limit, index])


@dataclass(frozen=True, slots=True, eq=False)
class Sharing:
    """What every job gets, by job; the shares of those that compete, and how they were made."""

    targets: Mapping[str, Allocation | None]
    shares: Mapping[str, Share]
    award: Award

    def standings(self) -> Standings:
        """What those that compete hold, are given and wished."""
        every = list(self.shares.values())
        candidates = [share.wish.at.candidates for share in every]
        given = [
            own.index(self.targets[job]) for job, own in zip(self.shares, candidates, strict=True)
        ]
        return Standings(
            jobs=list(self.shares),
            weights=np.array([share.wish.job.weight for share in every]),
            nothing=np.array([share.worth.nothing for share in every]),
            held=_holding(every, [own.held for own in candidates]),
            given=_holding(every, given),
            wished=_holding(every, [share.wish.target for share in every]),
            wishes=np.array([share.wish.target is not None for share in every], dtype=np.bool_),
        )


def _holding(shares: Sequence[Share], indices: Sequence[int | None]) -> Holding:
    limits = len(shares[0].wish.at.candidates.uses) if shares else 0
    rows = list(zip(shares, indices, strict=True))
    uses = [[share.use(index, limit) for share, index in rows] for limit in range(limits)]
    values = np.array([share.value(index) for share, index in rows], dtype=np.float64)
    return Holding(values, np.array(uses, dtype=np.float64).reshape(limits, len(rows)))


def share_out(wishes: Sequence[Wish], supply: Supply, effort: Effort) -> Sharing:
    """The allocations of most surplus in all within the limits.

    Each job's progress has the value that it has at the job's own finish; what it holds is
    changed only for more surplus than the change costs. What is held unknown goes on being held,
    as far as the limits bear it.
    """
    kept = kept_unknown(wishes, supply)
    room = supply.maximum - supply.uses(kept.values())
    competing = sorted(
        (wish for wish in wishes if wish.eligible.any()),
        key=lambda wish: (wish.job.submitted_seconds, wish.job.id),
    )
    prices = finish_prices([_fluid(wish) for wish in competing], np.maximum(room, 0.0))
    shares = {wish.job.id: _share(wish, own) for wish, own in zip(competing, prices, strict=True)}
    made = award([_bid(share) for share in shares.values()], room, effort)
    targets: dict[str, Allocation | None] = {wish.job.id: None for wish in wishes}
    targets |= kept
    for (job, share), choice in zip(shares.items(), made.choices, strict=True):
        if choice is not None:
            (columns,) = np.nonzero(share.wish.eligible)
            targets[job] = share.wish.at.candidates.allocation(int(columns[choice]))
    return Sharing(targets, shares, made)


def kept_unknown(wishes: Sequence[Wish], supply: Supply) -> dict[str, Allocation]:
    """What is held unknown and goes on being held: in their order, while the limits bear it."""
    kept: dict[str, Allocation] = {}
    for wish in wishes:
        held = wish.job.held
        if wish.why is not Why.HOLDS_UNKNOWN or held is None:
            continue
        if supply.bears(supply.uses([*kept.values(), held])):
            kept[wish.job.id] = held
    return kept


@lru_cache(maxsize=512)
def _fluid(wish: Wish) -> FluidJob:
    every, which, weight = wish.at.candidates, wish.eligible, wish.job.weight
    return FluidJob(
        value_of_time=wish.bid * weight,
        work=wish.remaining,
        usd_per_second=every.usd_per_second[which] * weight,
        rate=every.rate[which],
        uses=every.uses[:, which],
        held_uses=None if every.held is None else every.uses[:, every.held],
        keeping_usd_per_second=weight * keeping_usd_per_second(wish.at, wish.bid, wish.work),
        starting_share=starting_share(wish.job),
    )


def _share(wish: Wish, finish_price: FloatArray) -> Share:
    prices = finish_price / wish.job.weight
    return Share(wish, worth(wish.at, wish.eligible, wish.bid, prices, wish.work))


def _bid(share: Share) -> Bid:
    every, which = share.wish.at.candidates, share.wish.eligible
    weight = share.wish.job.weight
    is_held = every.held is not None and bool(which[every.held])
    return Bid(
        value=weight * share.worth.surplus[which],
        uses=every.uses[:, which],
        nothing=weight * share.worth.nothing,
        incumbent=int(which[: every.held].sum()) if is_held else None,
    )
