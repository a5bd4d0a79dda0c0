"""Shortlists: the few candidates of each of many jobs that may matter, with all their draws.

Screening has two rounds. The first evaluates all sizes with a few draws. It keeps sizes that are
best at some price of progress, on each kind of device and of each offer. The second evaluates
these with all draws and keeps at most `_MOST`. These have the highest surplus for their use of a
limit, or cost least per useful example, on average or in lucky draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.allocation.candidates import Candidates, candidates, held_size
from autoscaler.economics.allocation.cohorts import Cohort
from autoscaler.economics.allocation.speeds import Speeds
from autoscaler.economics.fleets.dominance import TIMES_BEST
from autoscaler.economics.pricing.spot import (
    goodput_with_reclaims,
    goodput_with_restarts,
    price_with_refills,
)
from autoscaler.economics.pricing.starts import billed_starts_of_jobs
from autoscaler.economics.pricing.transfers import Reclaims, reclaims_of, transfer_usd_per_second
from autoscaler.economics.supply.caches import with_rows
from autoscaler.economics.supply.sizes import permitted_sizes
from autoscaler.economics.supply.supply import SECONDS_PER_HOUR, BoolArray, IntArray, Supply
from autoscaler.goodput.throughput import FloatArray

# Number of candidates of each job, with the held one.
_MOST = 64
# First round, by offer: multiples of the cheapest price of progress on the kind of device, at each
# of which the best number of instances is kept; and numbers that are kept in any case.
_TIMES_CHEAPEST = (1.0, 1.3, 1.8, 2.5, 4.0, 8.0, 20.0)
_DOUBLINGS = (1, 2, 4, 8, 15, 30, 59)
# Second round: number of candidates of least price of progress that are kept in any case. As many
# are kept by a price of progress that many standard deviations below its mean. On the held offer
# fewer are kept, because changing to another one costs more.
_CHEAPEST = 5
_CHEAPEST_HELD = 3
_HOPED_DEVIATIONS = 0.8
_VOTES_TO_KEEP = 100

# Indices of some jobs, and the first of their candidates: an index of arrays (J, M).
Cells = tuple[IntArray, slice]


@dataclass(frozen=True, slots=True, eq=False)
class CandidateTable:
    """J jobs with M candidates each, the first of which is the held one; arrays are (J, M).

    Attributes:
        offer: index of the offer.
        instances: number of instances.
        devices_used: devices used on each instance.
        usd_per_second: price with refills after reclaims.
        mean_seconds: mean seconds per useful example over draws, with reclaims.
        measured: whether that size was measured.
        allowed: whether the job may hold it.
        exists: False for entries that only pad a row.
    """

    offer: IntArray
    instances: IntArray
    devices_used: IntArray
    usd_per_second: FloatArray
    mean_seconds: FloatArray
    measured: BoolArray
    allowed: BoolArray
    exists: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class Shortlists(CandidateTable):
    """Shortlists with `seconds_per_example` in K draws, (J, K, M)."""

    seconds_per_example: FloatArray

    @staticmethod
    def blank(jobs: int, draws: int) -> Shortlists:
        """Return rows without candidates."""
        shape = jobs, _MOST
        seconds: Any = np.ones((jobs, draws, _MOST), dtype=np.float32)
        return Shortlists(
            offer=np.zeros(shape, dtype=np.int64),
            instances=np.ones(shape, dtype=np.int64),
            devices_used=np.ones(shape, dtype=np.int64),
            usd_per_second=np.ones(shape),
            mean_seconds=np.ones(shape),
            measured=np.zeros(shape, dtype=np.bool_),
            allowed=np.zeros(shape, dtype=np.bool_),
            exists=np.zeros(shape, dtype=np.bool_),
            seconds_per_example=seconds,
        )

    def take(self, rows: IntArray) -> CandidateTable:
        """Return the rows without draws, cut to the width of the longest row."""
        width = max(int(self.exists[rows].sum(axis=1).max(initial=1)) + 1, 2)
        return CandidateTable(
            *(getattr(self, field.name)[rows, :width] for field in fields(CandidateTable))
        )

    def draws(self, rows: IntArray, cells: Cells) -> FloatArray:
        """Return the draws of some candidates of some of the rows, (block, K, width)."""
        jobs, columns = cells
        return self.seconds_per_example[rows[jobs], :, columns]

    def with_rows(self, rows: int) -> Shortlists:
        """Return the lists with room for at least `rows` rows."""
        return Shortlists(*(with_rows(getattr(self, field.name), rows) for field in fields(self)))

    def put(self, rows: IntArray, other: Shortlists) -> None:
        """Overwrite these rows with all rows of `other`."""
        for field in fields(self):
            getattr(self, field.name)[rows] = getattr(other, field.name)


class Screening:
    """J jobs of a cohort, evaluated at all its A sizes.

    Args:
        jobs: J jobs.
        cohort: cohort of the jobs.
        supply: supply of the snapshot.
        bids: values of time of the jobs, $ per second, (J,).
        known: cached speeds, and the rows of the jobs in them, (J,).
    """

    def __init__(
        self,
        jobs: Sequence[JobSnapshot],
        cohort: Cohort,
        supply: Supply,
        bids: FloatArray,
        known: tuple[Speeds, IntArray],
    ) -> None:
        self._jobs, self._cohort, self._supply, self._bids = jobs, cohort, supply, bids
        self._speeds, self._rows = known
        self._speeds.look(jobs, self._rows)
        self._runs = self._speeds.runs(self._rows)[:, cohort.place]
        self._held = [held_size(job, supply) for job in jobs]
        held_index = [-1 if held is None else cohort.index.get(held, -1) for held in self._held]
        can_stay = self._runs[np.arange(len(jobs)), held_index] if len(cohort.place) else False
        self._held_at = np.where(can_stay, np.array(held_index, dtype=np.int64), -1)
        self._refill = billed_starts_of_jobs([job.switching for job in jobs], supply.terms)

    def shortlists(self) -> Shortlists:
        """Return the shortlists of the jobs."""
        cohort = self._cohort
        if not len(cohort.place):
            return self._with_held(Shortlists.blank(len(self._jobs), cohort.like.draws))
        reclaims = self._reclaims_per_second()
        refill = self._refill[:, cohort.sizes.offer]
        left_with_one_less = self._speeds.left(self._rows)[:, cohort.place]
        share_left = self._goodput_share_left(left_with_one_less, reclaims, refill)
        price = price_with_refills(
            cohort.like.terms.usd_per_second[cohort.sizes.offer],
            cohort.sizes.instances.astype(np.float64),
            reclaims,
            refill,
            cohort.sizes.gangs(cohort.like.shard),
        )
        price = price + self._carried_usd_per_second(reclaims)
        is_open = self._available_sizes() & self._runs & (share_left > 0)
        probed = self._speeds.probed(self._rows)
        chosen = self._places_to_evaluate(share_left / probed[:, cohort.place], price, is_open)
        seconds = self._speeds.seconds(self._jobs, self._rows, chosen)
        slot = np.full(probed.shape, -1)
        np.put_along_axis(slot, chosen, np.arange(chosen.shape[1])[None], axis=1)
        mean, deviation = seconds.mean(axis=1), seconds.std(axis=1)
        columns = slot[:, cohort.place]
        is_open &= columns >= 0
        columns = np.maximum(columns, 0)
        expected = np.take_along_axis(mean, columns, axis=1) / np.maximum(share_left, 1e-30)
        unsure = np.take_along_axis(deviation / mean, columns, axis=1)
        votes = self._votes(1.0 / expected, price, unsure, is_open)
        best = np.argsort(-votes, axis=1, kind="stable")[:, : _MOST - 1]
        filler = np.take_along_axis(votes, best, axis=1) == 0
        best = np.sort(best + filler * votes.shape[1], axis=1) % votes.shape[1]
        best = np.concatenate([np.maximum(self._held_at, 0)[:, None], best], axis=1)
        best = np.pad(best, ((0, 0), (0, _MOST - best.shape[1])))
        return self._listed(best, votes, (price, share_left, seconds, columns))

    def _carried_usd_per_second(self, reclaims: FloatArray) -> FloatArray:
        """Return $ per second for moving checkpoints, (J, A)."""
        terms, sizes = self._cohort.like.terms, self._cohort.sizes
        if not terms.has_ways:
            return np.zeros(1)
        rows = zip(self._jobs, reclaims, strict=True)
        return np.array(
            [
                transfer_usd_per_second(job.switching, terms, sizes, self._reclaims(row))
                for job, row in rows
            ]
        )

    def _reclaims(self, per_second: FloatArray) -> Reclaims:
        """Return the reclaims at each size, of `per_second` over all its instances, (A,)."""
        like = self._cohort.like
        return reclaims_of(self._cohort.sizes, per_second, like.shard, like.instances.minimum)

    def _reclaims_per_second(self) -> FloatArray:
        """Return reclaims a second over all instances of each size together, (J, A)."""
        sizes, terms = self._cohort.sizes, self._cohort.like.terms
        per_hour = terms.reclaims_per_hour[sizes.offer]
        reclaims = np.tile(per_hour * sizes.instances, (len(self._jobs), 1))
        for row, job, held in zip(reclaims, self._jobs, self._held, strict=True):
            if held is not None and job.held_reclaims_per_hour is not None:
                kept_instances = np.where(
                    sizes.offer == held[0], np.minimum(sizes.instances, held[1]), 0
                )
                row += kept_instances * (job.held_reclaims_per_hour - per_hour)
        return reclaims / SECONDS_PER_HOUR

    def _goodput_share_left(
        self, left: FloatArray, reclaims: FloatArray, refill: FloatArray
    ) -> FloatArray:
        """Return the share of goodput that reclaims leave at each size, (J, A)."""
        costs = [job.switching for job in self._jobs]
        pause = np.array([switching.reclaim_seconds for switching in costs])[:, None]
        restore = np.array([switching.restore_seconds for switching in costs])[:, None]
        full_share = np.ones_like(reclaims)
        share_left = goodput_with_reclaims(full_share, left, reclaims, refill, pause)
        restarts = self._reclaims(reclaims[0]).starts_again & (reclaims > 0).any(axis=0)
        checkpoints = [
            (switching.checkpoint_seconds, switching.checkpoint_interval_seconds)
            for switching in costs
        ]
        for checkpoint in set(checkpoints):
            rows = np.flatnonzero([pair == checkpoint for pair in checkpoints])
            cells = np.ix_(rows, np.flatnonzero(restarts))
            restart_seconds = refill[cells] + restore[rows]
            share_left[cells] = goodput_with_restarts(
                full_share[cells], reclaims[cells], restart_seconds, *checkpoint
            )
        return np.where(reclaims > 0, share_left, 1.0)

    def _available_sizes(self) -> BoolArray:
        """Return which sizes each job might get, except the held one, (J, A)."""
        cohort, sizes = self._cohort, self._cohort.sizes
        is_available = np.tile(cohort.can_be_had, (len(self._jobs), 1))
        for row_index, (row, held) in enumerate(zip(is_available, self._held, strict=True)):
            if held is None:
                continue
            job = self._jobs[row_index]
            smaller = (sizes.offer == held[0]) & (sizes.instances <= held[1])
            if stays(job, self._supply) and self._is_held_within_bounds(row_index):
                row &= smaller
            row |= smaller
        is_available[np.arange(len(is_available)), self._held_at] &= self._held_at < 0
        return is_available

    def _is_held_within_bounds(self, row: int) -> bool:
        """Return whether the held allocation of a row is within the job's bounds."""
        held, job = self._held[row], self._jobs[row]
        if held is None or self._held_at[row] >= 0:
            return held is not None
        return permitted_sizes(job, self._supply).index(*held) is not None

    def _places_to_evaluate(
        self, rate: FloatArray, price: FloatArray, is_open: BoolArray
    ) -> IntArray:
        """Return the places to evaluate with all draws, at most 24 per kind, (J, C)."""
        cohort = self._cohort
        jobs = np.arange(len(rate))
        votes = np.zeros(
            (len(rate), sum(len(places.devices) for places in cohort.places.values()))
        )
        is_best = np.zeros_like(votes)
        rate = np.where(is_open, rate, 1e-30)
        cost = (price + self._bids[:, None]) / rate
        for part in cohort.slices.values():
            of_kind = (cohort.place >= part.start) & (cohort.place < part.stop)
            least_cost = cost[:, of_kind].min(axis=1)[:, None]
            cheapest = (price / rate)[:, of_kind].min(axis=1)[:, None]
            for offer in cohort.of_offer:
                if not of_kind[offer.start]:
                    continue
                place = cohort.place[offer]
                nearness = least_cost / cost[:, offer]
                votes[:, place] = np.maximum(votes[:, place], nearness)
                sizes = cohort.sizes.instances[offer]
                is_best[:, place[np.isin(sizes, _DOUBLINGS)]] = 1.0
                for times in _TIMES_CHEAPEST:
                    surplus = times * cheapest * rate[:, offer] - price[:, offer]
                    is_best[jobs, place[surplus.argmax(axis=1)]] = 1.0
        votes += is_best
        has_held = self._held_at >= 0
        votes[jobs[has_held], cohort.place[self._held_at[has_held]]] += _VOTES_TO_KEEP
        cheapest = cohort.place[np.where(is_open, price, np.inf).argmin(axis=1)]
        votes[jobs, cheapest] += _VOTES_TO_KEEP
        parts = []
        for kind, part in cohort.slices.items():
            chosen_slice = self._speeds.chosen_slices[kind]
            place_count = chosen_slice.stop - chosen_slice.start
            ranked = np.argpartition(-votes[:, part], place_count - 1, axis=1)[:, :place_count]
            parts.append(np.sort(ranked, axis=1) + part.start)
        return np.concatenate(parts, axis=1)

    def _votes(
        self, rate: FloatArray, price: FloatArray, unsure: FloatArray, is_open: BoolArray
    ) -> IntArray:
        """Return how strongly each size should be kept, (J, A); 0: drop it."""
        votes: Any = np.zeros(rate.shape, dtype=np.int16)
        cost = np.where(is_open, (price + self._bids[:, None]) / rate, np.inf)
        hoped = cost * (1.0 - _HOPED_DEVIATIONS * np.minimum(unsure, 1.0))
        cheapest_count = min(_CHEAPEST, cost.shape[1])
        for ranking in (cost, hoped):
            best = np.argpartition(ranking, cheapest_count - 1, axis=1)[:, :cheapest_count]
            np.put_along_axis(votes, best, _VOTES_TO_KEEP, axis=1)
        votes[self._cheapest_on_held_offer(cost)] = _VOTES_TO_KEEP
        least_cost = np.where(is_open.any(axis=1), cost.min(axis=1), 0.0)
        earned, paid = (least_cost[:, None] * rate).T, np.where(is_open, price, np.inf).T
        for use in self._cohort.uses:
            order = np.argsort(use, kind="stable")
            earned_in_order, paid_in_order = earned[order], paid[order]
            rising = np.zeros(earned.shape, dtype=np.int16)
            for times in TIMES_BEST:
                surplus = times * earned_in_order
                surplus -= paid_in_order
                rising[1:] += surplus[1:] > _running_maximum(surplus)[:-1]
                rising[0] += 1
            votes[:, order] += rising.T
        cheapest = np.where(is_open, price, np.inf).argmin(axis=1)
        votes[np.arange(len(votes)), cheapest] += _VOTES_TO_KEEP
        return np.where(is_open, votes, 0)

    def _cheapest_on_held_offer(self, cost: FloatArray) -> BoolArray:
        """Return the sizes of least price of progress on the held offer of each job, (J, A).

        A change to them needs no other instances and moves no checkpoint, which `cost` leaves out.
        """
        held_offer = np.array([-1 if held is None else held[0] for held in self._held])
        cost = np.where(self._cohort.sizes.offer == held_offer[:, None], cost, np.inf)
        rank = min(_CHEAPEST_HELD, cost.shape[1]) - 1
        chosen: BoolArray = cost <= np.partition(cost, rank, axis=1)[:, rank : rank + 1]
        return chosen & np.isfinite(cost)

    def _listed(
        self,
        best: IntArray,
        votes: IntArray,
        evaluated: tuple[FloatArray, FloatArray, FloatArray, IntArray],
    ) -> Shortlists:
        price, share_left, seconds, columns = evaluated
        cohort, sizes = self._cohort, self._cohort.sizes
        exists = np.take_along_axis(votes, best, axis=1) > 0
        exists[:, 0] = [held is not None for held in self._held]
        slot = np.take_along_axis(columns, best, axis=1)
        left = np.where(exists, np.take_along_axis(share_left, best, axis=1), 1.0)
        measured = np.zeros((len(best), share_left.shape[1]), dtype=np.bool_)
        for row, job in zip(measured, self._jobs, strict=True):
            row[cohort.measured(job.models)] = True
        drawn: Any = np.take_along_axis(seconds, slot[:, None], axis=2)
        np.divide(drawn, left[:, None], out=drawn, dtype=np.float64, casting="same_kind")
        drawn.swapaxes(1, 2)[~exists] = 1.0
        listed = Shortlists(
            offer=sizes.offer[best],
            instances=sizes.instances[best],
            devices_used=sizes.devices_used[best],
            usd_per_second=np.take_along_axis(price, best, axis=1),
            mean_seconds=drawn.mean(axis=1, dtype=np.float64),
            seconds_per_example=drawn,
            measured=np.take_along_axis(measured, best, axis=1),
            allowed=exists.copy(),
            exists=exists,
        )
        return self._with_held(listed)

    def _with_held(self, listed: Shortlists) -> Shortlists:
        """Return the lists with held allocations that are not sizes of the cohort."""
        for row, job in enumerate(self._jobs):
            if self._held[row] is not None and self._held_at[row] < 0:
                _put_held(listed, row, candidates(job, self._supply))
        return listed


def _running_maximum(rows: FloatArray) -> FloatArray:
    """Return the maximum of each row and of all rows before it, element by element, (A, J).

    `np.maximum.accumulate` along the first axis takes nine times as long.
    """
    result = rows.copy()
    for before, row in pairwise(result):
        np.maximum(before, row, out=row)
    return result


def _put_held(listed: Shortlists, row: int, found_candidates: Candidates) -> None:
    """Write a held allocation that is not a size of the cohort into its row."""
    held = found_candidates.held
    if held is None:
        listed.exists[row, 0] = listed.allowed[row, 0] = False
        return
    listed.offer[row, 0] = found_candidates.sizes.offer[held]
    listed.instances[row, 0] = found_candidates.sizes.instances[held]
    listed.devices_used[row, 0] = found_candidates.sizes.devices_used[held]
    listed.usd_per_second[row, 0] = found_candidates.usd_per_second[held]
    listed.seconds_per_example[row, :, 0] = 1.0 / found_candidates.goodput[:, held]
    listed.mean_seconds[row, 0] = listed.seconds_per_example[row, :, 0].mean(dtype=np.float64)
    listed.measured[row, 0] = found_candidates.measured[held]
    listed.allowed[row, 0] = found_candidates.allowed[held]


def stays(job: JobSnapshot, supply: Supply) -> bool:
    """Return whether the held allocation is not complete or not measured yet."""
    held = job.held
    offer = None if held is None else supply.offer(held.offer)
    if held is None or offer is None:
        return False
    measured = job.models[offer.device_kind].measured
    return job.trained != held or (held.instances, held.devices) not in measured
