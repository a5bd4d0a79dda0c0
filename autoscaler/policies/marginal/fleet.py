"""Plan of a large fleet, whose jobs are priced together (docs/economics-fleets.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, pairwise
from typing import Any

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.choice.demands import ChoiceReason, Demand, demand
from autoscaler.economics.choice.surplus import keeping_usd_per_second, worth
from autoscaler.economics.explanation.facts import Facts, facts_of
from autoscaler.economics.fleets.dominance import prune_dominated
from autoscaler.economics.fleets.facts import fleet_facts, fleet_targets
from autoscaler.economics.fleets.fleet import Fleet, can_be_listed, fleets
from autoscaler.economics.fleets.surplus import keeping_of_jobs, worth_of_jobs
from autoscaler.economics.pricing.displacement import starting_share
from autoscaler.economics.scarcity.many_fluid import FluidJobs, fluid_prices
from autoscaler.economics.supply.supply import BoolArray, IntArray, Supply
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.marginal.contests import CompetingJobs, ValuedAllocations
from autoscaler.policies.marginal.decomposition import (
    Columns,
    PricedAllocation,
    allocate_by_prices,
    useful,
)
from autoscaler.policies.marginal.sharing import kept_unknown


@dataclass(frozen=True, slots=True, eq=False)
class FleetPlan:
    """Plan of every job of a fleet.

    Attributes:
        targets: allocation of each job by id; None for nothing.
        bids: value of time of each job by id, $ per second.
        facts: facts of each job's reason, made as they are read.
        standings: allocations of the competing jobs; None where the limits allow all wishes.
        division: division of the limits; None where the limits allow all wishes.
    """

    targets: Mapping[str, Allocation | None]
    bids: Mapping[str, float]
    facts: Iterator[Facts]
    standings: CompetingJobs | None = None
    division: PricedAllocation | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Bidders:
    """J jobs with M candidates each; a candidate index of -1 is no candidate.

    Attributes:
        jobs: the J jobs.
        bids: value of time with which each competes, $ per second, (J,).
        remaining: useful examples left, (J,).
        held: candidate that each holds, (J,).
        wished: candidate that each would have by itself, (J,).
        eligible: whether a job may hold a candidate, (J, M).
        usd_per_second: price of each candidate, (J, M).
        rate: useful examples per second, (J, M).
        uses: use of each limit, (R, J, M).
        keeping_usd_per_second: each job's saving by keeping its allocation, (J,).
        worth: function of finish prices (J, R) to the worth of each candidate, (J, M), and of
            nothing, (J,).
        targets: function of candidates (J,) to allocations.
        facts: function of candidates (J,) and their allocations to the facts of each reason.
    """

    jobs: Sequence[JobSnapshot]
    bids: FloatArray
    remaining: FloatArray
    held: IntArray
    wished: IntArray
    eligible: BoolArray
    usd_per_second: FloatArray
    rate: FloatArray
    uses: FloatArray
    keeping_usd_per_second: FloatArray
    worth: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
    targets: Callable[[IntArray], Sequence[Allocation | None]]
    facts: Callable[[IntArray, Sequence[Allocation | None]], Iterator[Facts]]

    @property
    def weights(self) -> FloatArray:
        """Weight of each job, (J,)."""
        return np.array([job.weight for job in self.jobs], dtype=np.float64)

    def uses_of(self, columns: IntArray) -> FloatArray:
        """Return the use of each limit by one candidate of each job, (R, J)."""
        uses: FloatArray = self.uses[:, np.arange(len(columns)), np.maximum(columns, 0)]
        return np.where(columns >= 0, uses, 0.0)


def plan_fleet(jobs: Sequence[JobSnapshot], supply: Supply, most_times: float) -> FleetPlan:
    """Return each job's own best allocation, or the greatest total surplus if limits bind."""
    room = supply.maximum - supply.uses(job.held for job in jobs)
    batched = [job for job in jobs if can_be_listed(job, supply)]
    names = {job.id for job in batched}
    singles = [demand(job, supply, room, most_times) for job in jobs if job.id not in names]
    groups = [_bidders_of_fleet(fleet) for fleet in fleets(batched, supply, room, most_times)]
    groups += [
        _bidders_of_one(prune_dominated(choice)) for choice in singles if choice.eligible.any()
    ]
    given = [group.wished for group in groups]
    unknown = [choice for choice in singles if choice.why is ChoiceReason.HOLDS_UNKNOWN]
    kept: Mapping[str, Allocation | None] = {choice.job.id: choice.job.held for choice in unknown}
    used = supply.uses(kept.values())
    for group in groups:
        used = used + group.uses_of(group.wished).sum(axis=1)
    standings = division = None
    if groups and not supply.bears(used):
        kept = kept_unknown(unknown, supply)
        given, standings, division = _share_limits(
            groups, supply.maximum - supply.uses(kept.values())
        )
    idle = [choice for choice in singles if not choice.eligible.any()]
    targets = {choice.job.id: kept.get(choice.job.id) for choice in idle}
    facts: list[Iterator[Facts]] = [(facts_of(choice, targets[choice.job.id]) for choice in idle)]
    bids = {choice.job.id: choice.bid for choice in singles}
    for group, group_given in zip(groups, given, strict=True):
        ids, group_targets = [job.id for job in group.jobs], group.targets(group_given)
        targets |= zip(ids, group_targets, strict=True)
        bids |= zip(ids, group.bids.tolist(), strict=True)
        facts.append(group.facts(group_given, group_targets))
    return FleetPlan(targets, bids, chain.from_iterable(facts), standings, division)


def _bidders_of_fleet(fleet: Fleet) -> _Bidders:
    """Return the bidders of jobs that are priced together."""
    return _Bidders(
        jobs=fleet.jobs,
        bids=fleet.bid,
        remaining=fleet.remaining,
        held=np.where(fleet.has_held, 0, -1),
        wished=fleet.choices.target,
        eligible=fleet.choices.eligible,
        usd_per_second=fleet.lists.usd_per_second,
        rate=fleet.rate,
        uses=fleet.uses,
        keeping_usd_per_second=keeping_of_jobs(fleet),
        worth=lambda finish_prices: worth_of_jobs(fleet, finish_prices),
        targets=lambda given: fleet_targets(fleet, given),
        facts=lambda given, targets: fleet_facts(fleet, given, targets),
    )


def _bidders_of_one(choice: Demand) -> _Bidders:
    """Return the bidders of a single job that cannot be priced with others."""
    candidates = choice.at.candidates

    def worth_at(finish_prices: FloatArray) -> tuple[FloatArray, FloatArray]:
        job_worth = worth(choice.at, choice.eligible, choice.bid, finish_prices[0], choice.work)
        return job_worth.surplus[None], np.array([job_worth.nothing])

    def targets(given: IntArray) -> Sequence[Allocation | None]:
        return [None if given[0] < 0 else candidates.allocation(int(given[0]))]

    return _Bidders(
        jobs=[choice.job],
        bids=np.array([choice.bid]),
        remaining=np.array([choice.remaining]),
        held=np.array([-1 if candidates.held is None else candidates.held]),
        wished=np.array([-1 if choice.target is None else choice.target]),
        eligible=choice.eligible[None],
        usd_per_second=candidates.usd_per_second[None],
        rate=candidates.rate[None],
        uses=candidates.uses[:, None],
        keeping_usd_per_second=np.array(
            [keeping_usd_per_second(choice.at, choice.bid, choice.work)]
        ),
        worth=worth_at,
        targets=targets,
        facts=lambda _, targets: iter([facts_of(choice, targets[0])]),
    )


def _share_limits(
    groups: Sequence[_Bidders], room: FloatArray
) -> tuple[list[IntArray], CompetingJobs, PricedAllocation]:
    """Return the candidate given to each job of each group, with standings and division.

    All values and prices are in $ per second.
    """
    room = np.maximum(room, 0.0)
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
    kept = np.flatnonzero(useful(value, uses, room))
    division = allocate_by_prices(Columns(job[kept], value[kept], uses[:, kept], room))
    column = _concatenated([column for _, column in rows])
    given_columns = np.full(starts[-1], -1)
    chosen = kept[division.chosen]
    given_columns[job[chosen]] = column[chosen]
    given = [given_columns[start:end] for start, end in pairwise(starts.tolist())]
    return given, _standings(groups, worths, given), division


def _finish_prices(
    groups: Sequence[_Bidders], rows: Sequence[tuple[IntArray, ...]], room: FloatArray
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
    joined_prices = fluid_prices(
        FluidJobs(
            *(
                _concatenated([getattr(part, name) for part in parts])
                for name in (field.name for field in fields(FluidJobs))
            )
        ),
        room,
    )
    prices = [np.zeros((len(group.jobs), len(room))) for group in groups]
    for price, indices, start in zip(prices, present, starts, strict=False):
        price[indices] = joined_prices[start : start + len(indices)]
    return prices


def _standings(
    groups: Sequence[_Bidders],
    worths: Sequence[tuple[FloatArray, FloatArray]],
    given: Sequence[IntArray],
) -> CompetingJobs:
    """Return the held, given and wished allocations of all competing jobs."""

    def holding(columns: Sequence[IntArray]) -> ValuedAllocations:
        """Return value and uses of one candidate of each job."""
        values, uses = [], []
        for group, (surplus, nothing), chosen in zip(groups, worths, columns, strict=True):
            at = surplus[np.arange(len(chosen)), np.maximum(chosen, 0)]
            values.append(np.where(chosen >= 0, at, nothing))
            uses.append(group.uses_of(chosen))
        return ValuedAllocations(_concatenated(values), _concatenated(uses))

    wished = [group.wished for group in groups]
    return CompetingJobs(
        jobs=[job.id for group in groups for job in group.jobs],
        weights=_concatenated([group.weights for group in groups]),
        nothing=_concatenated([nothing for _, nothing in worths]),
        held=holding([group.held for group in groups]),
        given=holding(given),
        wished=holding(wished),
        demands=np.concatenate([columns >= 0 for columns in wished]),
    )


def _concatenated(parts: Sequence[Any]) -> Any:
    """Return the arrays concatenated along their last axis."""
    return np.concatenate(parts, axis=-1)
