"""Plan of all ordinary jobs within the limits (docs/economics-fleets.md).

Few jobs are priced one by one, at every size. The jobs of a large fleet are priced together from
shortlists, except those that need more than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.choice.demands import ChoiceReason, Demand, demand
from autoscaler.economics.explanation.facts import Facts
from autoscaler.economics.fleets.facts import facts_of_one
from autoscaler.economics.fleets.fleet import can_be_listed, fleets
from autoscaler.economics.pricing.displacement import starting_share
from autoscaler.economics.pricing.objectives import MOST_TIMES_DEAREST
from autoscaler.economics.scarcity.fluid import FluidJobs, finish_prices
from autoscaler.economics.supply.supply import FLEET_JOBS, IntArray, Supply
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.marginal.bidders import Bidders, bidders_of_fleet, bidders_of_one
from autoscaler.policies.marginal.exact import SolverLimits
from autoscaler.policies.marginal.limit_sharing import (
    Columns,
    PricedAllocation,
    allocate,
    useful,
)
from autoscaler.policies.marginal.rivals import CompetingJobs, ValuedAllocations

# Worth of each candidate, (J, M), and of nothing, (J,), of each group, $ per second.
_Worths = Sequence[tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, slots=True)
class MarginalParameters:
    """Parameters of the planning.

    Attributes:
        effort: bounds on the search for the best plan of many jobs.
        most_times_dearest: highest value of time of any job, as a multiple of the price of its
            largest allocation.
        fleet_jobs: number of jobs above which they are priced together as a fleet.
    """

    effort: SolverLimits = field(default_factory=SolverLimits)
    most_times_dearest: float = MOST_TIMES_DEAREST
    fleet_jobs: int = FLEET_JOBS


@dataclass(frozen=True, slots=True, eq=False)
class FleetPlan:
    """Plan of every job.

    Attributes:
        groups: the jobs that may hold a candidate.
        idle: choices of all other jobs.
        targets: allocation of each job by id; None for nothing.
        worths: worth of the candidates of each group; empty where the limits allow all demands.
        division: division of the limits; None where the limits allow all demands.
    """

    groups: Sequence[Bidders]
    idle: Sequence[Demand]
    targets: Mapping[str, Allocation | None]
    worths: _Worths = ()
    division: PricedAllocation | None = None

    def with_targets(self, targets: Mapping[str, Allocation | None]) -> FleetPlan:
        """Return the plan with other targets."""
        return replace(self, targets=targets)

    @property
    def bids(self) -> dict[str, float]:
        """Value of time of each job by id, $ per second."""
        bids = {choice.job.id: choice.bid for choice in self.idle}
        for group in self.groups:
            bids |= zip((job.id for job in group.jobs), group.bids.tolist(), strict=True)
        return bids

    @property
    def keeping(self) -> dict[str, float]:
        """Saving of each job that may hold a candidate by keeping what it holds, $ per second."""
        saved: dict[str, float] = {}
        for group in self.groups:
            ids = [job.id for job in group.jobs]
            saved |= zip(ids, group.keeping_usd_per_second.tolist(), strict=True)
        return saved

    def facts(self) -> Iterator[Facts]:
        """Yield the facts of each job's reason, made as they are read."""
        for choice in self.idle:
            yield facts_of_one(choice, self.targets[choice.job.id])
        for group in self.groups:
            targets = [self.targets[job.id] for job in group.jobs]
            yield from group.facts(group.columns(targets), targets)

    def standings(self) -> CompetingJobs:
        """Return the held, given and wished allocations of all jobs that compete for limits."""
        groups, wished = self.groups, [group.wished for group in self.groups]
        given = [group.columns([self.targets[job.id] for job in group.jobs]) for group in groups]
        return CompetingJobs(
            jobs=[job.id for group in groups for job in group.jobs],
            weights=_concatenated([group.weights for group in groups]),
            nothing=_concatenated([nothing for _, nothing in self.worths]),
            held=self._holding([group.held for group in groups]),
            given=self._holding(given),
            wished=self._holding(wished),
            demands=np.concatenate([columns >= 0 for columns in wished]),
        )

    def _holding(self, columns: Sequence[IntArray]) -> ValuedAllocations:
        """Return value and uses of one candidate of each job."""
        values, uses = [], []
        for group, (surplus, nothing), chosen in zip(
            self.groups, self.worths, columns, strict=True
        ):
            at = surplus[np.arange(len(chosen)), np.maximum(chosen, 0)]
            values.append(np.where(chosen >= 0, at, nothing))
            uses.append(group.uses_of(chosen))
        return ValuedAllocations(_concatenated(values), _concatenated(uses))


def plan_fleet(
    jobs: Sequence[JobSnapshot], supply: Supply, parameters: MarginalParameters
) -> FleetPlan:
    """Return each job's own best allocation, or the greatest total surplus if limits bind.

    A job's progress has its value at the job's own finish. A held allocation changes only for more
    surplus than the change costs. Allocations without a model stay as far as the limits allow. Of
    equal jobs the one submitted first comes first.
    """
    jobs = sorted(jobs, key=lambda job: (job.submitted_seconds, job.id))
    groups, idle = priced_jobs(jobs, supply, parameters.most_times_dearest)
    kept = {
        choice.job.id: choice.job.held
        for choice in idle
        if choice.why is ChoiceReason.HOLDS_UNKNOWN
    }
    wished = _targets(groups, [group.wished for group in groups], idle, kept)
    if supply.bears(supply.uses(wished.values())):
        return FleetPlan(groups, idle, wished)
    kept = _kept_within_limits(kept, supply)
    if not groups:
        return FleetPlan(groups, idle, _targets(groups, [], idle, kept))
    room = np.maximum(supply.maximum - supply.uses(kept.values()), 0.0)
    given, worths, division = _share_limits(groups, room, parameters.effort)
    return FleetPlan(groups, idle, _targets(groups, given, idle, kept), worths, division)


def priced_jobs(
    jobs: Sequence[JobSnapshot], supply: Supply, most_times: float
) -> tuple[list[Bidders], list[Demand]]:
    """Return the jobs that may hold a candidate, in groups, and the choices of all others."""
    room = supply.maximum - supply.uses(job.held for job in jobs)
    is_fleet = supply.terms.is_fleet
    listed = [job for job in jobs if can_be_listed(job, supply)] if is_fleet else []
    names = {job.id for job in listed}
    singles = [demand(job, supply, room, most_times) for job in jobs if job.id not in names]
    groups = [bidders_of_fleet(fleet) for fleet in fleets(listed, supply, room, most_times)]
    groups += [
        bidders_of_one(choice, supply.cache, is_pruned=is_fleet)
        for choice in singles
        if choice.eligible.any()
    ]
    return groups, [choice for choice in singles if not choice.eligible.any()]


def _targets(
    groups: Sequence[Bidders],
    given: Sequence[IntArray],
    idle: Sequence[Demand],
    kept: Mapping[str, Allocation | None],
) -> dict[str, Allocation | None]:
    """Return the allocation of each job by id; `given` are candidates of each group's jobs."""
    targets = {choice.job.id: kept.get(choice.job.id) for choice in idle}
    for group, columns in zip(groups, given, strict=True):
        targets |= zip((job.id for job in group.jobs), group.allocations(columns), strict=True)
    return targets


def _kept_within_limits(
    unknown: Mapping[str, Allocation | None], supply: Supply
) -> dict[str, Allocation | None]:
    """Return the held allocations without a model that stay: in order, while the limits allow."""
    kept: dict[str, Allocation | None] = {}
    for job, held in unknown.items():
        if supply.bears(supply.uses([*kept.values(), held])):
            kept[job] = held
    return kept


def _share_limits(
    groups: Sequence[Bidders], room: FloatArray, effort: SolverLimits
) -> tuple[list[IntArray], _Worths, PricedAllocation]:
    """Return the candidate given to each job of each group, with worths and division.

    All values and prices are in $ per second.
    """
    rows = [np.nonzero(group.eligible) for group in groups]
    prices = _finish_prices(groups, rows, room)
    worths = [
        group.worth(price / group.weights[:, None])
        for group, price in zip(groups, prices, strict=True)
    ]
    starts = np.cumsum([0, *(len(group.jobs) for group in groups)])
    job = _concatenated([start + at for start, (at, _) in zip(starts, rows, strict=False)])
    value = _concatenated(
        [
            group.weights[at] * (surplus[at, column] - nothing[at])
            for group, (surplus, nothing), (at, column) in zip(groups, worths, rows, strict=True)
        ]
    )
    uses = _concatenated(
        [group.uses[:, at, column] for group, (at, column) in zip(groups, rows, strict=True)]
    )
    column = _concatenated([column for _, column in rows])
    kept = np.flatnonzero(useful(value, uses, room))
    held = _concatenated([group.held for group in groups])[job[kept]] == column[kept]
    division = allocate(
        Columns(job[kept], value[kept], uses[:, kept], room, np.flatnonzero(held)), effort
    )
    given_columns = np.full(starts[-1], -1)
    chosen = kept[division.chosen]
    given_columns[job[chosen]] = column[chosen]
    given = [given_columns[start:end] for start, end in pairwise(starts.tolist())]
    return given, worths, division


def _finish_prices(
    groups: Sequence[Bidders], rows: Sequence[tuple[IntArray, ...]], room: FloatArray
) -> list[FloatArray]:
    """Return the weighted finish prices of each group, (J, R); 0 for jobs without candidates."""
    present = [np.flatnonzero(group.eligible.any(axis=1)) for group in groups]
    starts = np.cumsum([0, *(len(members) for members in present)])
    parts = []
    for group, indices, (at, column), start in zip(groups, present, rows, starts, strict=False):
        position = np.zeros(len(group.jobs), dtype=np.int64)
        position[indices] = start + np.arange(len(indices))
        weights = group.weights
        parts.append(
            FluidJobs(
                value_of_time=(group.bids * weights)[indices],
                starting_share=np.array([starting_share(job) for job in group.jobs])[indices],
                work=group.remaining[indices],
                job=position[at],
                usd_per_second=group.usd_per_second[at, column] * weights[at],
                rate=group.rate[at, column],
                uses=group.uses[:, at, column],
                held_uses=group.uses_of(group.held)[:, indices],
                keeping_usd_per_second=(group.keeping_usd_per_second * weights)[indices],
            )
        )
    joined = FluidJobs(
        *(
            _concatenated([getattr(part, name.name) for part in parts])
            for name in fields(FluidJobs)
        )
    )
    joined_prices = finish_prices(joined, room)
    prices = [np.zeros((len(group.jobs), len(room))) for group in groups]
    for price, indices, start in zip(prices, present, starts, strict=False):
        price[indices] = joined_prices[start : start + len(indices)]
    return prices


def _concatenated(parts: Sequence[Any]) -> Any:
    """Return the arrays concatenated along their last axis."""
    return np.concatenate(parts, axis=-1)
