"""Who got what another job wished for, and at which bids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autoscaler.domain.offer import Limit
from autoscaler.economics.reasons import Contest
from autoscaler.economics.supply import BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """What each of n jobs would have: its value, $ per second, (n,), and what it uses, (R, n)."""

    value: FloatArray
    uses: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Standings:
    """How n jobs stand that compete: what each holds, is given and wished; nothing uses nothing.

    `weights` are (n,), and so is the value of holding `nothing`; who `wishes` nothing, (n,), can't
    be kept from it.
    """

    jobs: Sequence[str]
    weights: FloatArray
    nothing: FloatArray
    held: Holding
    given: Holding
    wished: Holding
    wishes: BoolArray


@dataclass(frozen=True, slots=True)
class _Rivals:
    """Of one limit, (bid, job) of those given more of it, the highest two bids, and of those that
    hold some, the lowest two: the first of them that is another is a job's rival."""

    takers: Sequence[tuple[float, int]]
    holders: Sequence[tuple[float, int]]

    def of(self, job: int) -> tuple[int | None, float, bool]:
        """Who was given more at the highest bid, or else holds it at the lowest."""
        for ranked, took_it in ((self.takers, True), (self.holders, False)):
            for bid, rival in ranked:
                if rival != job:
                    return rival, bid, took_it
        return None, 0.0, False


class Contests:
    """Why a sharing gave jobs less than they wished; what all were given is looked at once."""

    def __init__(self, standings: Standings, limits: Sequence[Limit], prices: FloatArray) -> None:
        self._all, self._limits, self._prices = standings, limits, prices
        self._rivals: dict[int, _Rivals] = {}
        self._index = {job: index for index, job in enumerate(standings.jobs)}

    def over(self, job: str) -> Contest | None:
        """The limit for which this job has less than it wished, and its rival there.

        None where it has its wish, or no limit keeps it from it.
        """
        index = self._index.get(job)
        limit = -1 if index is None else self._limit_of[index]
        if index is None or limit < 0:
            return None
        if limit not in self._rivals:
            self._rivals[limit] = self._rivals_over(limit)
        rival, bid, took_it = self._rivals[limit].of(index)
        every = self._all
        return Contest(
            limit=self._limits[limit],
            own_usd_per_second=self._own_of[index],
            rival=None if rival is None else every.jobs[rival],
            rival_usd_per_second=bid,
            took_it=took_it,
            own_weight=self._weight_of[index],
            rival_weight=1.0 if rival is None else self._weight_of[rival],
        )

    @cached_property
    def _limit_of(self) -> list[int]:
        limits: list[int] = self._decisive.tolist()
        return limits

    @cached_property
    def _own_of(self) -> list[float]:
        worth: list[float] = self._own.tolist()
        return worth

    @cached_property
    def _weight_of(self) -> list[float]:
        weights: list[float] = self._all.weights.tolist()
        return weights

    @cached_property
    def _decisive(self) -> IntArray:
        """The limit of the highest price among those of which the wish would use more, or -1."""
        every = self._all
        more = (every.wished.uses > every.given.uses) & every.wishes
        if not len(more):
            return np.full(len(every.jobs), -1)
        price = np.where(more, self._prices[:, None], -np.inf)
        return np.where(more.any(axis=0), price.argmax(axis=0), -1)

    @cached_property
    def _own(self) -> FloatArray:
        """What a unit of the decisive limit is worth to each job, weighted, (n,)."""
        every = self._all
        limit, job = np.maximum(self._decisive, 0), np.arange(len(every.jobs))
        shrinks = every.held.uses[limit, job] > every.given.uses[limit, job]
        missed = Holding(
            np.where(shrinks, every.held.value, every.wished.value),
            np.where(shrinks, every.held.uses, every.wished.uses),
        )
        return self._per_unit(every.given, missed)[limit, job]

    def _per_unit(self, less: Holding, more: Holding) -> FloatArray:
        """$ per second, weighted, for each unit that `more` uses beyond `less`, (R, n); or 0."""
        units = more.uses - less.uses
        worth = self._all.weights * (more.value - less.value)
        found = np.maximum(worth / np.where(units > 0, units, 1.0), 0.0)
        return np.where(units > 0, found, 0.0)

    def _rivals_over(self, limit: int) -> _Rivals:
        every = self._all
        given, held = every.given.uses[limit], every.held.uses[limit]
        nothing = Holding(every.nothing, np.zeros_like(every.given.uses))
        took = self._per_unit(every.held, every.given)[limit]
        holds = self._per_unit(nothing, every.given)[limit]
        (takers,) = np.nonzero(given > held)
        (holders,) = np.nonzero((given > 0) & ~(given > held))
        best = takers[np.lexsort((-takers, -took[takers]))[:2]].tolist()
        least = holders[np.lexsort((holders, holds[holders]))[:2]].tolist()
        return _Rivals(
            [(float(took[job]), job) for job in best], [(float(holds[job]), job) for job in least]
        )
