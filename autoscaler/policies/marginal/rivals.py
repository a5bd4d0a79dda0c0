"""Rivals for scarce limits: which job got the capacity that another job wanted, at which bid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autoscaler.domain.offer import Limit
from autoscaler.economics.explanation.reasons import Contest
from autoscaler.economics.supply.supply import BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class ValuedAllocations:
    """Allocations of n jobs: value in $ per second, (n,), and use of each of R limits, (R, n)."""

    value: FloatArray
    uses: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class CompetingJobs:
    """Held, given and wished allocations of n competing jobs.

    Attributes:
        jobs: ids of the n jobs.
        weights: weight of each job, (n,).
        nothing: value of holding nothing, $ per second, (n,); it uses no limit.
        held: present allocations.
        given: allocations of the plan.
        wished: allocations that each job would have without competition.
        demands: whether each job demands any allocation, (n,).
    """

    jobs: Sequence[str]
    weights: FloatArray
    nothing: FloatArray
    held: ValuedAllocations
    given: ValuedAllocations
    wished: ValuedAllocations
    demands: BoolArray


@dataclass(frozen=True, slots=True)
class _RankedRivals:
    """Candidate rivals on one limit, as (bid, job index), at most two of each sort.

    Attributes:
        takers: jobs that the plan gives more of the limit, highest bid first.
        holders: jobs that keep some of the limit, lowest bid first.
    """

    takers: Sequence[tuple[float, int]]
    holders: Sequence[tuple[float, int]]

    def of(self, job: int) -> tuple[int | None, float, bool]:
        """Return the rival of a job, its bid and whether it was given more.

        The rival is the highest-bidding other taker, or else the lowest-bidding other holder; None
        if there is none.
        """
        for ranked, took_it in ((self.takers, True), (self.holders, False)):
            for bid, rival in ranked:
                if rival != job:
                    return rival, bid, took_it
        return None, 0.0, False


class Contests:
    """Reasons why a sharing gave jobs less than they demand, from arrays over all jobs."""

    def __init__(
        self, standings: CompetingJobs, limits: Sequence[Limit], prices: FloatArray
    ) -> None:
        self._standings, self._limits, self._prices = standings, limits, prices
        self._rivals: dict[int, _RankedRivals] = {}
        self._index = {job: index for index, job in enumerate(standings.jobs)}

    def over(self, job: str) -> Contest | None:
        """Return the limit that denies the job its demand, and its rival; None if none does."""
        index = self._index.get(job)
        limit = -1 if index is None else self._limit_of[index]
        if index is None or limit < 0:
            return None
        if limit not in self._rivals:
            self._rivals[limit] = self._rivals_over(limit)
        rival, bid, took_it = self._rivals[limit].of(index)
        standings = self._standings
        return Contest(
            limit=self._limits[limit],
            own_usd_per_second=self._unit_value_of[index],
            rival=None if rival is None else standings.jobs[rival],
            rival_usd_per_second=bid,
            took_it=took_it,
            own_weight=self._weight_of[index],
            rival_weight=1.0 if rival is None else self._weight_of[rival],
        )

    @cached_property
    def _limit_of(self) -> list[int]:
        limits: list[int] = self._binding_limit.tolist()
        return limits

    @cached_property
    def _unit_value_of(self) -> list[float]:
        worth: list[float] = self._unit_value.tolist()
        return worth

    @cached_property
    def _weight_of(self) -> list[float]:
        weights: list[float] = self._standings.weights.tolist()
        return weights

    @cached_property
    def _binding_limit(self) -> IntArray:
        """Return the dearest limit of which the demand needs more than is given, or -1, (n,)."""
        standings = self._standings
        needs_more = (standings.wished.uses > standings.given.uses) & standings.demands
        if not len(needs_more):
            return np.full(len(standings.jobs), -1)
        price = np.where(needs_more, self._prices[:, None], -np.inf)
        return np.where(needs_more.any(axis=0), price.argmax(axis=0), -1)

    @cached_property
    def _unit_value(self) -> FloatArray:
        """Return the weighted value per unit of the binding limit, $ per second, (n,)."""
        standings = self._standings
        limit, job = np.maximum(self._binding_limit, 0), np.arange(len(standings.jobs))
        is_shrunk = standings.held.uses[limit, job] > standings.given.uses[limit, job]
        missed_holding = ValuedAllocations(
            np.where(is_shrunk, standings.held.value, standings.wished.value),
            np.where(is_shrunk, standings.held.uses, standings.wished.uses),
        )
        return self._gain_per_unit(standings.given, missed_holding)[limit, job]

    def _gain_per_unit(self, less: ValuedAllocations, more: ValuedAllocations) -> FloatArray:
        """Return the weighted gain per unit that `more` uses beyond `less`, $ per second, (R, n).

        Entries without additional use are 0.
        """
        units = more.uses - less.uses
        weighted_gain = self._standings.weights * (more.value - less.value)
        gain = np.maximum(weighted_gain / np.where(units > 0, units, 1.0), 0.0)
        return np.where(units > 0, gain, 0.0)

    def _rivals_over(self, limit: int) -> _RankedRivals:
        """Return the ranked rivals on one limit."""
        standings = self._standings
        given, held = standings.given.uses[limit], standings.held.uses[limit]
        nothing = ValuedAllocations(standings.nothing, np.zeros_like(standings.given.uses))
        taker_bid = self._gain_per_unit(standings.held, standings.given)[limit]
        holder_bid = self._gain_per_unit(nothing, standings.given)[limit]
        (takers,) = np.nonzero(given > held)
        (holders,) = np.nonzero((given > 0) & ~(given > held))
        highest = takers[np.lexsort((-takers, -taker_bid[takers]))[:2]].tolist()
        lowest = holders[np.lexsort((holders, holder_bid[holders]))[:2]].tolist()
        return _RankedRivals(
            [(float(taker_bid[job]), job) for job in highest],
            [(float(holder_bid[job]), job) for job in lowest],
        )
