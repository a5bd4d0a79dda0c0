"""Groups of priced jobs, as arrays over the candidates of each job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.choice.demands import Demand
from autoscaler.economics.explanation.facts import Facts
from autoscaler.economics.fleets.dominance import prune_dominated
from autoscaler.economics.fleets.facts import fleet_facts
from autoscaler.economics.fleets.fleet import Fleet, fleet_of_one
from autoscaler.economics.fleets.surplus import keeping_of_jobs, worth_of_jobs
from autoscaler.economics.supply.caches import CacheSection, IdentityKey, PlanningCache
from autoscaler.economics.supply.sizes import Sizes
from autoscaler.economics.supply.supply import BoolArray, IntArray, MarketTerms
from autoscaler.goodput.throughput import FloatArray

# Size of the bidders of one job, in tables of costs of its demand.
_TABLES = 2


@dataclass(frozen=True, slots=True, eq=False)
class Bidders:
    """J jobs with M candidates each; a candidate index of -1 is no candidate.

    Attributes:
        jobs: the J jobs.
        terms: offers and limits.
        bids: value of time with which each competes, $ per second, (J,).
        remaining: useful examples left, (J,).
        held: candidate that each holds, (J,).
        wished: candidate that each would have by itself, (J,).
        is_bound: whether a deadline or an own budget decides for each, (J,).
        sizes: the candidates, (J, M).
        exists: False for entries that only pad a row, (J, M).
        eligible: whether a job may hold a candidate, (J, M).
        usd_per_second: price of each candidate, (J, M).
        rate: useful examples per second, (J, M).
        uses: use of each limit, (R, J, M).
        keeping_usd_per_second: each job's saving by keeping its allocation, (J,).
        worth: function of finish prices (J, R) to the worth of each candidate, (J, M), and of
            nothing, (J,).
        facts: function of candidates (J,) and their allocations to the facts of each reason.
    """

    jobs: Sequence[JobSnapshot]
    terms: MarketTerms
    bids: FloatArray
    remaining: FloatArray
    held: IntArray
    wished: IntArray
    is_bound: BoolArray
    sizes: Sizes
    exists: BoolArray
    eligible: BoolArray
    usd_per_second: FloatArray
    rate: FloatArray
    uses: FloatArray
    keeping_usd_per_second: FloatArray
    worth: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
    facts: Callable[[IntArray, Sequence[Allocation | None]], Iterator[Facts]]

    @property
    def weights(self) -> FloatArray:
        """Weight of each job's surplus, (J,): a job whose dollars count more values all higher."""
        weights = [job.weight * job.dollar_weight for job in self.jobs]
        return np.array(weights, dtype=np.float64)

    def uses_of(self, columns: IntArray) -> FloatArray:
        """Return the use of each limit by one candidate of each job, (R, J)."""
        uses: FloatArray = self.uses[:, np.arange(len(columns)), np.maximum(columns, 0)]
        return np.where(columns >= 0, uses, 0.0)

    def allocations(self, columns: IntArray) -> list[Allocation | None]:
        """Return one candidate of each job as an allocation; None for -1."""
        (changed,) = np.nonzero((columns >= 0) & (columns != self.held))
        index, sizes, offers = (changed, columns[changed]), self.sizes, self.terms.offers
        rows = zip(
            changed.tolist(),
            sizes.offer[index].tolist(),
            sizes.instances[index].tolist(),
            sizes.devices_used[index].tolist(),
            strict=True,
        )
        keeps = (columns >= 0).tolist()
        allocations = [
            job.held if keep else None for job, keep in zip(self.jobs, keeps, strict=True)
        ]
        for job, offer, *size in rows:
            allocation = Allocation(offers[offer].id, *size)
            if allocation != allocations[job]:
                allocations[job] = allocation
        return allocations

    def columns(self, allocations: Sequence[Allocation | None]) -> IntArray:
        """Return the candidate of each job that is an allocation, (J,); -1 for none."""
        index, nothing = self.terms.index, (-1, 0, 0)
        rows = [
            nothing
            if allocation is None
            else (
                index.get(allocation.offer, -1),
                allocation.instances,
                allocation.devices_used,
            )
            for allocation in allocations
        ]
        offer, instances, devices_used = np.array(rows, dtype=np.int64).T[:, :, None]
        is_same = (self.sizes.offer == offer) & (self.sizes.instances == instances)
        is_same &= (self.sizes.devices_used == devices_used) & self.exists
        return np.where(is_same.any(axis=1), is_same.argmax(axis=1), -1)


_SECTION: CacheSection[Bidders] = CacheSection(100_000_000)


def bidders_of_fleet(fleet: Fleet) -> Bidders:
    """Return the bidders of jobs that are priced together."""
    lists = fleet.lists
    return Bidders(
        jobs=fleet.jobs,
        terms=fleet.terms,
        bids=fleet.bid,
        remaining=fleet.remaining,
        held=np.where(fleet.has_held, 0, -1),
        wished=fleet.choices.target,
        is_bound=fleet.is_bound,
        sizes=Sizes(lists.offer, lists.instances, lists.devices_used),
        exists=lists.exists,
        eligible=fleet.choices.eligible,
        usd_per_second=lists.usd_per_second,
        rate=fleet.rate,
        uses=fleet.uses,
        keeping_usd_per_second=keeping_of_jobs(fleet),
        worth=lambda finish_prices: worth_of_jobs(fleet, finish_prices),
        facts=lambda given, targets: fleet_facts(fleet, given, targets),
    )


def bidders_of_one(demand: Demand, cache: PlanningCache, is_pruned: bool) -> Bidders:
    """Return the bidders of a job that is priced by itself, cached by its demand.

    `is_pruned`: leave out the candidates that can't be best.
    """
    section, key = cache.of(_SECTION), (IdentityKey(demand), is_pruned)
    bidders = section.get(key)
    if bidders is None:
        fleet = fleet_of_one(prune_dominated(demand) if is_pruned else demand)
        known: dict[Allocation | None, Facts] = {}

        def facts(given: IntArray, targets: Sequence[Allocation | None]) -> Iterator[Facts]:
            if targets[0] not in known:
                known[targets[0]] = next(fleet_facts(fleet, given, targets))
            yield known[targets[0]]

        bidders = replace(bidders_of_fleet(fleet), facts=facts)
        section.put(key, bidders, _TABLES * demand.cost.nbytes)
    return bidders
