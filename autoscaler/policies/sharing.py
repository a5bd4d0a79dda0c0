"""Division of limits among jobs whose wishes together exceed them."""

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
    """One job's own choice, and the worth of every candidate to it."""

    wish: Wish
    worth: Worth

    def value(self, index: int | None) -> float:
        """Return the worth of a candidate, $ per second; an index of None is nothing."""
        return self.worth.nothing if index is None else float(self.worth.surplus[index])

    def use(self, index: int | None, limit: int) -> float:
        """Return a candidate's use of a limit; an index of None uses nothing."""
        return 0.0 if index is None else float(self.wish.at.candidates.uses[limit, index])


@dataclass(frozen=True, slots=True, eq=False)
class Sharing:
    """Result of a division of limits.

    Attributes:
        targets: allocation of every job by id; None for nothing.
        shares: inputs of the competing jobs by id.
        award: solution of the knapsack.
    """

    targets: Mapping[str, Allocation | None]
    shares: Mapping[str, Share]
    award: Award

    def standings(self) -> Standings:
        """Return the held, given and wished allocations of the competing jobs."""
        shares = list(self.shares.values())
        candidates = [share.wish.at.candidates for share in shares]
        given = [
            job_candidates.index(self.targets[job])
            for job, job_candidates in zip(self.shares, candidates, strict=True)
        ]
        return Standings(
            jobs=list(self.shares),
            weights=np.array([share.wish.job.weight for share in shares]),
            nothing=np.array([share.worth.nothing for share in shares]),
            held=_holding(shares, [job_candidates.held for job_candidates in candidates]),
            given=_holding(shares, given),
            wished=_holding(shares, [share.wish.target for share in shares]),
            wishes=np.array([share.wish.target is not None for share in shares], dtype=np.bool_),
        )


def _holding(shares: Sequence[Share], indices: Sequence[int | None]) -> Holding:
    """Return value and uses of one candidate of each share."""
    limits = len(shares[0].wish.at.candidates.uses) if shares else 0
    rows = list(zip(shares, indices, strict=True))
    uses = [[share.use(index, limit) for share, index in rows] for limit in range(limits)]
    values = np.array([share.value(index) for share, index in rows], dtype=np.float64)
    return Holding(values, np.array(uses, dtype=np.float64).reshape(limits, len(rows)))


def share_out(wishes: Sequence[Wish], supply: Supply, effort: Effort) -> Sharing:
    """Return the allocations of the greatest total surplus within the limits.

    A job's progress has its value at the job's own finish. A held allocation changes only for more
    surplus than the change costs. Allocations without a model stay as far as the limits allow.
    """
    kept = kept_unknown(wishes, supply)
    room = supply.maximum - supply.uses(kept.values())
    competing = sorted(
        (wish for wish in wishes if wish.eligible.any()),
        key=lambda wish: (wish.job.submitted_seconds, wish.job.id),
    )
    prices = finish_prices([_fluid(wish) for wish in competing], np.maximum(room, 0.0))
    shares = {
        wish.job.id: _share(wish, price) for wish, price in zip(competing, prices, strict=True)
    }
    solution = award([_bid(share) for share in shares.values()], room, effort)
    targets: dict[str, Allocation | None] = {wish.job.id: None for wish in wishes}
    targets |= kept
    for (job, share), choice in zip(shares.items(), solution.choices, strict=True):
        if choice is not None:
            (columns,) = np.nonzero(share.wish.eligible)
            targets[job] = share.wish.at.candidates.allocation(int(columns[choice]))
    return Sharing(targets, shares, solution)


def kept_unknown(wishes: Sequence[Wish], supply: Supply) -> dict[str, Allocation]:
    """Return the held allocations without a model that stay: in order, while the limits allow."""
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
    """Return the job's inputs of the fluid run, over its eligible candidates."""
    candidates, eligible, weight = wish.at.candidates, wish.eligible, wish.job.weight
    return FluidJob(
        value_of_time=wish.bid * weight,
        work=wish.remaining,
        usd_per_second=candidates.usd_per_second[eligible] * weight,
        rate=candidates.rate[eligible],
        uses=candidates.uses[:, eligible],
        held_uses=None if candidates.held is None else candidates.uses[:, candidates.held],
        keeping_usd_per_second=weight * keeping_usd_per_second(wish.at, wish.bid, wish.work),
        starting_share=starting_share(wish.job),
    )


def _share(wish: Wish, finish_price: FloatArray) -> Share:
    """Return the job's share, with its worth at these finish prices."""
    prices = finish_price / wish.job.weight
    return Share(wish, worth(wish.at, wish.eligible, wish.bid, prices, wish.work))


def _bid(share: Share) -> Bid:
    """Return the job's weighted bid over its eligible candidates."""
    candidates, eligible = share.wish.at.candidates, share.wish.eligible
    weight = share.wish.job.weight
    is_held = candidates.held is not None and bool(eligible[candidates.held])
    return Bid(
        value=weight * share.worth.surplus[eligible],
        uses=candidates.uses[:, eligible],
        nothing=weight * share.worth.nothing,
        incumbent=int(eligible[: candidates.held].sum()) if is_held else None,
    )
