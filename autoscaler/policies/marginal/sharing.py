"""Division of limits among jobs whose wishes together exceed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.choice.demands import ChoiceReason, Demand
from autoscaler.economics.choice.surplus import Surpluses, keeping_usd_per_second, worth
from autoscaler.economics.pricing.displacement import starting_share
from autoscaler.economics.scarcity.fluid import FluidJob, finish_prices
from autoscaler.economics.supply.supply import Supply
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.marginal.contests import CompetingJobs, ValuedAllocations
from autoscaler.policies.marginal.knapsack import (
    Bid,
    KnapsackSolution,
    SolverLimits,
    solve_knapsack,
)


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """One job's own choice, and the worth of every candidate to it."""

    demand: Demand
    worth: Surpluses

    def value(self, index: int | None) -> float:
        """Return the worth of a candidate, $ per second; an index of None is nothing."""
        return self.worth.nothing if index is None else float(self.worth.surplus[index])

    def use(self, index: int | None, limit: int) -> float:
        """Return a candidate's use of a limit; an index of None uses nothing."""
        return 0.0 if index is None else float(self.demand.at.candidates.uses[limit, index])


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
    solution: KnapsackSolution

    def standings(self) -> CompetingJobs:
        """Return the held, given and wished allocations of the competing jobs."""
        shares = list(self.shares.values())
        candidates = [share.demand.at.candidates for share in shares]
        given = [
            job_candidates.index(self.targets[job])
            for job, job_candidates in zip(self.shares, candidates, strict=True)
        ]
        return CompetingJobs(
            jobs=list(self.shares),
            weights=np.array([share.demand.job.weight for share in shares]),
            nothing=np.array([share.worth.nothing for share in shares]),
            held=_holding(shares, [job_candidates.held for job_candidates in candidates]),
            given=_holding(shares, given),
            wished=_holding(shares, [share.demand.target for share in shares]),
            demands=np.array(
                [share.demand.target is not None for share in shares], dtype=np.bool_
            ),
        )


def _holding(shares: Sequence[Share], indices: Sequence[int | None]) -> ValuedAllocations:
    """Return value and uses of one candidate of each share."""
    limits = len(shares[0].demand.at.candidates.uses) if shares else 0
    rows = list(zip(shares, indices, strict=True))
    uses = [[share.use(index, limit) for share, index in rows] for limit in range(limits)]
    values = np.array([share.value(index) for share, index in rows], dtype=np.float64)
    return ValuedAllocations(values, np.array(uses, dtype=np.float64).reshape(limits, len(rows)))


def share_out(demands: Sequence[Demand], supply: Supply, effort: SolverLimits) -> Sharing:
    """Return the allocations of the greatest total surplus within the limits.

    A job's progress has its value at the job's own finish. A held allocation changes only for more
    surplus than the change costs. Allocations without a model stay as far as the limits allow.
    """
    kept = kept_unknown(demands, supply)
    room = supply.maximum - supply.uses(kept.values())
    competing = sorted(
        (demand for demand in demands if demand.eligible.any()),
        key=lambda demand: (demand.job.submitted_seconds, demand.job.id),
    )
    prices = finish_prices([_fluid(demand) for demand in competing], np.maximum(room, 0.0))
    shares = {
        demand.job.id: _share(demand, price)
        for demand, price in zip(competing, prices, strict=True)
    }
    solution = solve_knapsack([_bid(share) for share in shares.values()], room, effort)
    targets: dict[str, Allocation | None] = {demand.job.id: None for demand in demands}
    targets |= kept
    for (job, share), choice in zip(shares.items(), solution.choices, strict=True):
        if choice is not None:
            (columns,) = np.nonzero(share.demand.eligible)
            targets[job] = share.demand.at.candidates.allocation(int(columns[choice]))
    return Sharing(targets, shares, solution)


def kept_unknown(demands: Sequence[Demand], supply: Supply) -> dict[str, Allocation]:
    """Return the held allocations without a model that stay: in order, while the limits allow."""
    kept: dict[str, Allocation] = {}
    for demand in demands:
        held = demand.job.held
        if demand.why is not ChoiceReason.HOLDS_UNKNOWN or held is None:
            continue
        if supply.bears(supply.uses([*kept.values(), held])):
            kept[demand.job.id] = held
    return kept


@lru_cache(maxsize=512)
def _fluid(demand: Demand) -> FluidJob:
    """Return the job's inputs of the fluid run, over its eligible candidates."""
    candidates, eligible, weight = demand.at.candidates, demand.eligible, demand.job.weight
    return FluidJob(
        value_of_time=demand.bid * weight,
        work=demand.remaining,
        usd_per_second=candidates.usd_per_second[eligible] * weight,
        rate=candidates.rate[eligible],
        uses=candidates.uses[:, eligible],
        held_uses=None if candidates.held is None else candidates.uses[:, candidates.held],
        keeping_usd_per_second=weight * keeping_usd_per_second(demand.at, demand.bid, demand.work),
        starting_share=starting_share(demand.job),
    )


def _share(demand: Demand, finish_price: FloatArray) -> Share:
    """Return the job's share, with its worth at these finish prices."""
    prices = finish_price / demand.job.weight
    return Share(demand, worth(demand.at, demand.eligible, demand.bid, prices, demand.work))


def _bid(share: Share) -> Bid:
    """Return the job's weighted bid over its eligible candidates."""
    candidates, eligible = share.demand.at.candidates, share.demand.eligible
    weight = share.demand.job.weight
    is_held = candidates.held is not None and bool(eligible[candidates.held])
    return Bid(
        value=weight * share.worth.surplus[eligible],
        uses=candidates.uses[:, eligible],
        nothing=weight * share.worth.nothing,
        incumbent=int(eligible[: candidates.held].sum()) if is_held else None,
    )
