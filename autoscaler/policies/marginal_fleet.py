"""The plan of so many jobs that they are looked at together: docs/economics.md, large fleets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, pairwise
from typing import Any

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.displacing import starting_share
from autoscaler.economics.facts import Facts, facts_of
from autoscaler.economics.fleet import Fleet, can_be_listed, fleets
from autoscaler.economics.fleet_facts import fleet_facts, fleet_targets
from autoscaler.economics.fleet_worth import keeping_of_jobs, worth_of_jobs
from autoscaler.economics.many_fluid import Fluid, fluid_prices
from autoscaler.economics.narrowing import narrowed
from autoscaler.economics.supply import BoolArray, IntArray, Supply
from autoscaler.economics.surplus import keeping_usd_per_second, worth
from autoscaler.economics.wishes import Why, Wish, wish
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.contests import Holding, Standings
from autoscaler.policies.decomposition import Columns, Division, divide, useful
from autoscaler.policies.sharing import kept_unknown


@dataclass(frozen=True, slots=True, eq=False)
class FleetPlan:
    """What every job of a fleet gets.

    `targets` and `bids` are by job; `facts`, of each job once, are made as they are asked for.
    Where the limits do not bear all wishes, `standings` are of those that compete and `division`
    is what they get.
    """

    targets: Mapping[str, Allocation | None]
    bids: Mapping[str, float]
    facts: Iterator[Facts]
    standings: Standings | None = None
    division: Division | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Bidders:
    """J jobs with M candidates each, some of which may be eligible; -1 of them is none.

    Attributes:
        jobs: J of them.
        bids: the value of time with which each competes, (J,).
        remaining: useful examples left, (J,).
        held: the candidate that each holds, (J,).
        wished: the candidate that each would have by itself, (J,).
        eligible: what they may hold, (J, M).
        usd_per_second: of each candidate, (J, M).
        rate: useful examples a second, (J, M).
        uses: of each limit, (R, J, M).
        keeping_usd_per_second: what each saves by keeping what it holds, (J,).
        worth: finish prices (J, R) -> worth of each candidate, (J, M), and of nothing, (J,).
        targets: what each gets, (J,) -> as allocations.
        facts: the same and as allocations -> what the reason of each is made of.
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
        """Of each job, (J,)."""
        return np.array([job.weight for job in self.jobs], dtype=np.float64)

    def uses_of(self, columns: IntArray) -> FloatArray:
        """What a candidate of each takes of the limits, (R, J)."""
        uses: FloatArray = self.uses[:, np.arange(len(columns)), np.maximum(columns, 0)]
        return np.where(columns >= 0, uses, 0.0)


def plan_fleet(jobs: Sequence[JobSnapshot], supply: Supply, most_times: float) -> FleetPlan:
    """What each job has by itself, if the limits bear it, or else the most surplus in all."""
    room = supply.maximum - supply.uses(job.held for job in jobs)
    listed = [job for job in jobs if can_be_listed(job, supply)]
    names = {job.id for job in listed}
    others = [wish(job, supply, room, most_times) for job in jobs if job.id not in names]
    groups = [_together(fleet) for fleet in fleets(listed, supply, room, most_times)]
    groups += [_alone(narrowed(own)) for own in others if own.eligible.any()]
    given = [group.wished for group in groups]
    unknown = [own for own in others if own.why is Why.HOLDS_UNKNOWN]
    kept: Mapping[str, Allocation | None] = {own.job.id: own.job.held for own in unknown}
    used = supply.uses(kept.values())
    for group in groups:
        used = used + group.uses_of(group.wished).sum(axis=1)
    standings = division = None
    if groups and not supply.bears(used):
        kept = kept_unknown(unknown, supply)
        given, standings, division = _shared(groups, supply.maximum - supply.uses(kept.values()))
    idle = [own for own in others if not own.eligible.any()]
    targets = {own.job.id: kept.get(own.job.id) for own in idle}
    facts: list[Iterator[Facts]] = [(facts_of(own, targets[own.job.id]) for own in idle)]
    bids = {own.job.id: own.bid for own in others}
    for group, own_given in zip(groups, given, strict=True):
        ids, own_targets = [job.id for job in group.jobs], group.targets(own_given)
        targets |= zip(ids, own_targets, strict=True)
        bids |= zip(ids, group.bids.tolist(), strict=True)
        facts.append(group.facts(own_given, own_targets))
    return FleetPlan(targets, bids, chain.from_iterable(facts), standings, division)


def _together(fleet: Fleet) -> _Bidders:
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


def _alone(own: Wish) -> _Bidders:
    every = own.at.candidates

    def worth_at(finish_prices: FloatArray) -> tuple[FloatArray, FloatArray]:
        found = worth(own.at, own.eligible, own.bid, finish_prices[0], own.work)
        return found.surplus[None], np.array([found.nothing])

    def targets(given: IntArray) -> Sequence[Allocation | None]:
        return [None if given[0] < 0 else every.allocation(int(given[0]))]

    return _Bidders(
        jobs=[own.job],
        bids=np.array([own.bid]),
        remaining=np.array([own.remaining]),
        held=np.array([-1 if every.held is None else every.held]),
        wished=np.array([-1 if own.target is None else own.target]),
        eligible=own.eligible[None],
        usd_per_second=every.usd_per_second[None],
        rate=every.rate[None],
        uses=every.uses[:, None],
        keeping_usd_per_second=np.array([keeping_usd_per_second(own.at, own.bid, own.work)]),
        worth=worth_at,
        targets=targets,
        facts=lambda _, found: iter([facts_of(own, found[0])]),
    )


def _shared(
    groups: Sequence[_Bidders], room: FloatArray
) -> tuple[list[IntArray], Standings, Division]:
    """What each is given; all values and prices in $ per second."""
    room = np.maximum(room, 0.0)
    rows = [np.nonzero(group.eligible) for group in groups]
    prices = _finish_prices(groups, rows, room)
    worths = [
        group.worth(price / group.weights[:, None])
        for group, price in zip(groups, prices, strict=True)
    ]
    starts = np.cumsum([0, *(len(group.jobs) for group in groups)])
    job = _joined([start + at for start, (at, _) in zip(starts, rows, strict=False)])
    value = _joined(
        [
            group.weights[at] * (surplus[at, column] - nothing[at])
            for group, (surplus, nothing), (at, column) in zip(groups, worths, rows, strict=True)
        ]
    )
    uses = _joined(
        [each.uses[:, at, column] for each, (at, column) in zip(groups, rows, strict=True)]
    )
    kept = np.flatnonzero(useful(value, uses, room))
    division = divide(Columns(job[kept], value[kept], uses[:, kept], room))
    column = _joined([column for _, column in rows])
    every = np.full(starts[-1], -1)
    chosen = kept[division.chosen]
    every[job[chosen]] = column[chosen]
    given = [every[start:end] for start, end in pairwise(starts.tolist())]
    return given, _standings(groups, worths, given), division


def _finish_prices(
    groups: Sequence[_Bidders], rows: Sequence[tuple[IntArray, ...]], room: FloatArray
) -> list[FloatArray]:
    """Of each group, (J, R), weighted; 0 for jobs to which nothing is open."""
    present = [np.flatnonzero(group.eligible.any(axis=1)) for group in groups]
    starts = np.cumsum([0, *(len(each) for each in present)])
    parts = []
    for group, own, (at, column), start in zip(groups, present, rows, starts, strict=False):
        number = np.zeros(len(group.jobs), dtype=np.int64)
        number[own] = start + np.arange(len(own))
        weights = group.weights
        parts.append(
            Fluid(
                value_of_time=(group.bids * weights)[own],
                starting_share=np.array([starting_share(job) for job in group.jobs])[own],
                work=group.remaining[own],
                job=number[at],
                usd_per_second=group.usd_per_second[at, column] * weights[at],
                rate=group.rate[at, column],
                uses=group.uses[:, at, column],
                held_uses=group.uses_of(group.held)[:, own],
                keeping_usd_per_second=(group.keeping_usd_per_second * weights)[own],
            )
        )
    found = fluid_prices(
        Fluid(
            *(
                _joined([getattr(part, name) for part in parts])
                for name in (field.name for field in fields(Fluid))
            )
        ),
        room,
    )
    prices = [np.zeros((len(group.jobs), len(room))) for group in groups]
    for price, own, start in zip(prices, present, starts, strict=False):
        price[own] = found[start : start + len(own)]
    return prices


def _standings(
    groups: Sequence[_Bidders],
    worths: Sequence[tuple[FloatArray, FloatArray]],
    given: Sequence[IntArray],
) -> Standings:
    def holding(columns: Sequence[IntArray]) -> Holding:
        values, uses = [], []
        for group, (surplus, nothing), own in zip(groups, worths, columns, strict=True):
            at = surplus[np.arange(len(own)), np.maximum(own, 0)]
            values.append(np.where(own >= 0, at, nothing))
            uses.append(group.uses_of(own))
        return Holding(_joined(values), _joined(uses))

    wished = [group.wished for group in groups]
    return Standings(
        jobs=[job.id for group in groups for job in group.jobs],
        weights=_joined([group.weights for group in groups]),
        nothing=_joined([nothing for _, nothing in worths]),
        held=holding([group.held for group in groups]),
        given=holding(given),
        wished=holding(wished),
        wishes=np.concatenate([own >= 0 for own in wished]),
    )


def _joined(parts: Sequence[Any]) -> Any:
    """One after the other along their last axis."""
    return np.concatenate(parts, axis=-1)
