"""Of many jobs at once the few candidates that may come to matter, with all their draws.

What a job of a fleet may hold is looked at twice: all of it by the first few draws, of which those
sizes are kept that are best at some price of progress, on each kind of device and of each offer;
those by all draws, of which the `_MOST` are kept that are worth most for what they use of a limit,
that cost least per progress, or that would if it turned out well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.candidates import Candidates, candidates, held_size
from autoscaler.economics.carrying import carried_usd_per_second
from autoscaler.economics.cohorts import Cohort
from autoscaler.economics.keeping import with_rows
from autoscaler.economics.narrowing import TIMES_BEST
from autoscaler.economics.sizes import permitted_sizes
from autoscaler.economics.speeds import Speeds
from autoscaler.economics.spot import (
    goodput_with_reclaims,
    goodput_with_restarts,
    price_with_refills,
)
from autoscaler.economics.starts import billed_starts_of_jobs
from autoscaler.economics.supply import SECONDS_PER_HOUR, BoolArray, IntArray, Supply
from autoscaler.goodput.throughput import FloatArray

# Candidates of each job, what it holds among them.
_MOST = 64
# Of each offer the numbers of instances that are best at these multiples of the cheapest price of
# progress on its kind of device, and some that are each about double the last: rungs of a ladder.
_TIMES_CHEAPEST = (1.0, 1.3, 1.8, 2.5, 4.0, 8.0, 20.0)
_DOUBLINGS = (1, 2, 4, 8, 15, 30, 59)
# So many of the cheapest per progress are kept in any case, and as many of those that would be so
# many standard deviations below their mean.
_CHEAPEST = 5
_HOPED_DEVIATIONS = 0.8
_IN_ANY_CASE = 100


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """J jobs with M candidates each, the first of which is what a job holds; all are (J, M).

    `mean_seconds` are those per example, with the reclaims of spot. What does not `exist` fills
    the row up.
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
class Shortlists(Listed):
    """The same with `seconds_per_example` in K draws, (J, K, M)."""

    seconds_per_example: FloatArray

    @staticmethod
    def blank(jobs: int, draws: int) -> Shortlists:
        """Rows in which nothing exists."""
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

    def take(self, rows: IntArray) -> Listed:
        """Those rows but for their draws, as wide as the longest of them."""
        width = max(int(self.exists[rows].sum(axis=1).max(initial=1)) + 1, 2)
        return Listed(*(getattr(self, each.name)[rows, :width] for each in fields(Listed)))

    def with_rows(self, rows: int) -> Shortlists:
        """These with room for so many rows."""
        return Shortlists(*(with_rows(getattr(self, each.name), rows) for each in fields(self)))

    def put(self, rows: IntArray, other: Shortlists) -> None:
        """Write those of another over these rows."""
        for each in fields(self):
            getattr(self, each.name)[rows] = getattr(other, each.name)


class Screening:
    """Some of the jobs of a cohort, J together, at all its A sizes.

    Args:
        jobs: J of them.
        cohort: theirs.
        supply: what they may have.
        bids: their values of time, $ per second, (J,).
        known: how fast they are, and at which rows that stands.
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
        at = [-1 if held is None else cohort.index.get(held, -1) for held in self._held]
        can_stay = self._runs[np.arange(len(jobs)), at] if len(cohort.place) else False
        self._held_at = np.where(can_stay, np.array(at, dtype=np.int64), -1)
        self._refill = billed_starts_of_jobs([job.switching for job in jobs], supply.terms)

    def shortlists(self) -> Shortlists:
        """Those of the block."""
        cohort = self._cohort
        if not len(cohort.place):
            return self._with_held(Shortlists.blank(len(self._jobs), cohort.like.draws))
        reclaims = self._reclaims()
        refill = self._refill[:, cohort.sizes.offer]
        left = self._speeds.left(self._rows)[:, cohort.place]
        kept = self._kept_share(left, reclaims, refill)
        price = price_with_refills(
            cohort.like.terms.usd_per_second[cohort.sizes.offer],
            cohort.sizes.instances.astype(np.float64),
            reclaims,
            refill,
        )
        price = price + self._carried(reclaims)
        open_to_it = self._open() & self._runs & (kept > 0)
        probed = self._speeds.probed(self._rows)
        chosen = self._chosen(kept / probed[:, cohort.place], price, open_to_it)
        seconds = self._speeds.seconds(self._jobs, self._rows, chosen)
        slot = np.full(probed.shape, -1)
        np.put_along_axis(slot, chosen, np.arange(chosen.shape[1])[None], axis=1)
        mean, deviation = seconds.mean(axis=1), seconds.std(axis=1)
        columns = slot[:, cohort.place]
        open_to_it &= columns >= 0
        columns = np.maximum(columns, 0)
        expected = np.take_along_axis(mean, columns, axis=1) / np.maximum(kept, 1e-30)
        unsure = np.take_along_axis(deviation / mean, columns, axis=1)
        votes = self._votes(1.0 / expected, price, unsure, open_to_it)
        best = np.argsort(-votes, axis=1, kind="stable")[:, : _MOST - 1]
        filler = np.take_along_axis(votes, best, axis=1) == 0
        best = np.sort(best + filler * votes.shape[1], axis=1) % votes.shape[1]
        best = np.concatenate([np.maximum(self._held_at, 0)[:, None], best], axis=1)
        best = np.pad(best, ((0, 0), (0, _MOST - best.shape[1])))
        return self._listed(best, votes, (price, kept, seconds, columns))

    def _carried(self, reclaims: FloatArray) -> FloatArray:
        """$ per second for the ways of checkpoints to storage and back, (J, A)."""
        terms, minimum = self._cohort.like.terms, self._cohort.like.instances.minimum
        if not terms.has_ways:
            return np.zeros(1)
        rows = zip(self._jobs, reclaims, strict=True)
        return np.array(
            [
                carried_usd_per_second(job.switching, terms, self._cohort.sizes, row, minimum)
                for job, row in rows
            ]
        )

    def _reclaims(self) -> FloatArray:
        """Reclaims a second of all instances of each size together, (J, A)."""
        sizes, terms = self._cohort.sizes, self._cohort.like.terms
        per_hour = terms.reclaims_per_hour[sizes.offer]
        reclaims = np.tile(per_hour * sizes.instances, (len(self._jobs), 1))
        for row, job, held in zip(reclaims, self._jobs, self._held, strict=True):
            if held is not None and job.held_reclaims_per_hour is not None:
                kept = np.where(sizes.offer == held[0], np.minimum(sizes.instances, held[1]), 0)
                row += kept * (job.held_reclaims_per_hour - per_hour)
        return reclaims / SECONDS_PER_HOUR

    def _kept_share(
        self, left: FloatArray, reclaims: FloatArray, refill: FloatArray
    ) -> FloatArray:
        """What share of the goodput of each size its reclaims leave, (J, A)."""
        costs = [job.switching for job in self._jobs]
        pause = np.array([each.pause_seconds for each in costs])[:, None]
        restore = np.array([each.restore_seconds for each in costs])[:, None]
        whole = np.ones_like(reclaims)
        kept = goodput_with_reclaims(whole, left, reclaims, refill, pause)
        again = self._cohort.sizes.instances - 1 < self._cohort.like.instances.minimum
        again &= (reclaims > 0).any(axis=0)
        each = [(one.checkpoint_seconds, one.checkpoint_interval_seconds) for one in costs]
        for checkpoint in set(each):
            rows = np.flatnonzero([one == checkpoint for one in each])
            part = np.ix_(rows, np.flatnonzero(again))
            restart = refill[part] + restore[rows]
            kept[part] = goodput_with_restarts(whole[part], reclaims[part], restart, *checkpoint)
        return np.where(reclaims > 0, kept, 1.0)

    def _open(self) -> BoolArray:
        """What each job might get, beside what it holds, (J, A)."""
        cohort, sizes = self._cohort, self._cohort.sizes
        found = np.tile(cohort.can_be_had, (len(self._jobs), 1))
        for row_index, (row, held) in enumerate(zip(found, self._held, strict=True)):
            if held is None:
                continue
            job = self._jobs[row_index]
            smaller = (sizes.offer == held[0]) & (sizes.instances <= held[1])
            if stays(job, self._supply) and self._may_hold_on(row_index):
                row &= smaller
            row |= smaller
        found[np.arange(len(found)), self._held_at] &= self._held_at < 0
        return found

    def _may_hold_on(self, row: int) -> bool:
        """Whether what it holds is within its bounds."""
        held, job = self._held[row], self._jobs[row]
        if held is None or self._held_at[row] >= 0:
            return held is not None
        return permitted_sizes(job, self._supply).index(*held) is not None

    def _chosen(self, rate: FloatArray, price: FloatArray, open_to_it: BoolArray) -> IntArray:
        """The places that are looked at by all draws, `_PLACES` at most of a kind, (J, C)."""
        cohort = self._cohort
        jobs = np.arange(len(rate))
        votes = np.zeros((len(rate), sum(len(own.devices) for own in cohort.places.values())))
        voted = np.zeros_like(votes)
        rate = np.where(open_to_it, rate, 1e-30)
        cost = (price + self._bids[:, None]) / rate
        for part in cohort.slices.values():
            of_kind = (cohort.place >= part.start) & (cohort.place < part.stop)
            least = cost[:, of_kind].min(axis=1)[:, None]
            cheapest = (price / rate)[:, of_kind].min(axis=1)[:, None]
            for offer in cohort.of_offer:
                if not of_kind[offer.start]:
                    continue
                place = cohort.place[offer]
                near = least / cost[:, offer]
                votes[:, place] = np.maximum(votes[:, place], near)
                sizes = cohort.sizes.instances[offer]
                voted[:, place[np.isin(sizes, _DOUBLINGS)]] = 1.0
                for times in _TIMES_CHEAPEST:
                    surplus = times * cheapest * rate[:, offer] - price[:, offer]
                    voted[jobs, place[surplus.argmax(axis=1)]] = 1.0
        votes += voted
        has = self._held_at >= 0
        votes[jobs[has], cohort.place[self._held_at[has]]] += _IN_ANY_CASE
        cheapest = cohort.place[np.where(open_to_it, price, np.inf).argmin(axis=1)]
        votes[jobs, cheapest] += _IN_ANY_CASE
        parts = []
        for kind, part in cohort.slices.items():
            taken = self._speeds.chosen_slices[kind]
            most = taken.stop - taken.start
            ranked = np.argpartition(-votes[:, part], most - 1, axis=1)[:, :most]
            parts.append(np.sort(ranked, axis=1) + part.start)
        return np.concatenate(parts, axis=1)

    def _votes(
        self, rate: FloatArray, price: FloatArray, unsure: FloatArray, open_to_it: BoolArray
    ) -> IntArray:
        """How much each size is worth keeping, (J, A); 0 for what need not be kept."""
        votes: Any = np.zeros(rate.shape, dtype=np.int16)
        cost = np.where(open_to_it, (price + self._bids[:, None]) / rate, np.inf)
        hoped = cost * (1.0 - _HOPED_DEVIATIONS * np.minimum(unsure, 1.0))
        most = min(_CHEAPEST, cost.shape[1])
        for each in (cost, hoped):
            best = np.argpartition(each, most - 1, axis=1)[:, :most]
            np.put_along_axis(votes, best, _IN_ANY_CASE, axis=1)
        least = np.where(open_to_it.any(axis=1), cost.min(axis=1), 0.0)
        earned, paid = (least[:, None] * rate).T, np.where(open_to_it, price, np.inf).T
        for use in self._cohort.uses:
            order = np.argsort(use, kind="stable")
            earned_so, paid_so = earned[order], paid[order]
            rising = np.zeros(earned.shape, dtype=np.int16)
            for times in TIMES_BEST:
                worth = times * earned_so
                worth -= paid_so
                rising[1:] += worth[1:] > np.maximum.accumulate(worth, axis=0)[:-1]
                rising[0] += 1
            votes[:, order] += rising.T
        cheapest = np.where(open_to_it, price, np.inf).argmin(axis=1)
        votes[np.arange(len(votes)), cheapest] += _IN_ANY_CASE
        return np.where(open_to_it, votes, 0)

    def _listed(
        self,
        best: IntArray,
        votes: IntArray,
        found: tuple[FloatArray, FloatArray, FloatArray, IntArray],
    ) -> Shortlists:
        price, kept, seconds, columns = found
        cohort, sizes = self._cohort, self._cohort.sizes
        exists = np.take_along_axis(votes, best, axis=1) > 0
        exists[:, 0] = [held is not None for held in self._held]
        slot = np.take_along_axis(columns, best, axis=1)
        drawn = np.take_along_axis(seconds, slot[:, None], axis=2)
        drawn = drawn / np.take_along_axis(kept, best, axis=1)[:, None]
        measured = np.zeros((len(best), kept.shape[1]), dtype=np.bool_)
        for row, job in zip(measured, self._jobs, strict=True):
            row[cohort.measured(job.models)] = True
        drawn = np.where(exists[:, None], drawn, 1.0).astype(np.float32)
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
        """With what is held where that is no size of the cohort."""
        for at, job in enumerate(self._jobs):
            if self._held[at] is not None and self._held_at[at] < 0:
                _put_held(listed, at, candidates(job, self._supply))
        return listed


def _put_held(listed: Shortlists, row: int, every: Candidates) -> None:
    """What is held and is no size of the cohort, as the job by itself would have it."""
    held = every.held
    if held is None:
        listed.exists[row, 0] = listed.allowed[row, 0] = False
        return
    listed.offer[row, 0] = every.sizes.offer[held]
    listed.instances[row, 0] = every.sizes.instances[held]
    listed.devices_used[row, 0] = every.sizes.devices_used[held]
    listed.usd_per_second[row, 0] = every.usd_per_second[held]
    listed.seconds_per_example[row, :, 0] = 1.0 / every.goodput[:, held]
    listed.mean_seconds[row, 0] = listed.seconds_per_example[row, :, 0].mean(dtype=np.float64)
    listed.measured[row, 0] = every.measured[held]
    listed.allowed[row, 0] = every.allowed[held]


def stays(job: JobSnapshot, supply: Supply) -> bool:
    """Whether what it holds has still to come about, or to be measured."""
    held = job.held
    offer = None if held is None else supply.offer(held.offer)
    if held is None or offer is None:
        return False
    measured = job.models[offer.device_kind].measured
    return job.trained != held or (held.instances, held.devices) not in measured
