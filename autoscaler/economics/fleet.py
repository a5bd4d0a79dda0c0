"""What the jobs of a fleet would choose by themselves, and what all is worth to them: at once.

The same as `wish` and `worth` say of one job, of the candidates of its shortlist. Arrays of all J
jobs of one cohort and their M candidates are (J, M), with K draws (K, J, M).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.cohorts import Likeness, likeness
from autoscaler.economics.exploration import SURE_SHARE
from autoscaler.economics.objectives import price_range, value_of_time
from autoscaler.economics.remaining import UNKNOWN_REMAINING_SECONDS, knows_the_end
from autoscaler.economics.remembered import Remembered, keep, remembered
from autoscaler.economics.standby import standby_of
from autoscaler.economics.starts import billed_starts_of_jobs, fills_of_jobs
from autoscaler.economics.supply import BoolArray, IntArray, Supply, fits
from autoscaler.economics.switching import (
    End,
    Halts,
    Switches,
    between,
    from_nothing,
    kept_on_standby,
    standing_usd,
    way_back,
    with_standby,
)
from autoscaler.economics.wishes import Why
from autoscaler.goodput.formulas import formula_of
from autoscaler.goodput.throughput import FloatArray

# Jobs of one part of a cohort, and of those that are looked at with all their draws.
_TOGETHER = 512
_BLOCK = 16


def can_be_listed(job: JobSnapshot, supply: Supply) -> bool:
    """Whether a job's wish is one of its shortlist alone.

    It is not with a deadline or a budget, where the noise scale ahead is known, before anything
    was measured, or while the job holds what can't be judged.
    """
    objective, held = job.objective, job.held
    if objective.deadline_seconds is not None or objective.budget_usd is not None:
        return False
    if job.noise_curve is not None or not job.models:
        return False
    if len({len(model.draws) for model in job.models.values()}) > 1:
        return False
    if held is None:
        return any(model.measured for model in job.models.values())
    offer = supply.offer(held.offer)
    return offer is not None and offer.device_kind in job.models


def fleets(
    jobs: Sequence[JobSnapshot], supply: Supply, room: FloatArray, most_times: float
) -> list[Fleet]:
    """The jobs by their cohorts, in parts.

    All can be listed; the other arguments are those of `wish`.
    """
    alike: dict[Likeness, list[JobSnapshot]] = {}
    same: dict[object, list[JobSnapshot]] = {}
    for job in jobs:
        points = (model.point for model in job.models.values())
        draws = len(next(iter(job.models.values())).draws)
        key = job.instances, draws, *job.models, *map(formula_of, points)
        if key not in same:
            same[key] = alike.setdefault(likeness(job, supply), [])
        same[key].append(job)
    parts = [_parts(some, supply, room, most_times) for some in alike.values()]
    return list(chain.from_iterable(parts))


def _parts(
    jobs: Sequence[JobSnapshot], supply: Supply, room: FloatArray, most_times: float
) -> Iterator[Fleet]:
    prices = price_range(jobs[0], supply, most_times)
    value = np.array([value_of_time(job.objective, prices) for job in jobs])
    least = np.array([prices.least(job.waited_seconds) for job in jobs])
    bids = np.maximum(value, least)
    memory = remembered(jobs[0], likeness(jobs[0], supply), supply)
    rows = memory.rows(jobs, supply, bids)
    keep(memory)
    for start in range(0, len(jobs), _TOGETHER):
        part = slice(start, start + _TOGETHER)
        yield Fleet(jobs[part], supply, room, (memory, rows[part]), (value[part], bids[part]))


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """What each job would choose by itself.

    Attributes:
        target: which candidate, (J,); -1 for nothing.
        why: the ground of the choice, by job.
        eligible: what it may hold if it can't have its wish, (J, M).
        expected_usd: V of each candidate, (J, M).
        mean_usd: the mean of J over the draws, (J, M).
        better: in which share of draws J is less than that of what is held, (J, M).
    """

    target: IntArray
    why: Sequence[Why]
    eligible: BoolArray
    expected_usd: FloatArray
    mean_usd: FloatArray
    better: FloatArray


class Fleet:
    """J jobs of one cohort, each with M candidates, the first of them what it holds.

    Attributes:
        jobs: J of them.
        lists: their shortlists.
        value_of_time: $ per second, (J,).
        bid: the value of time with which each competes, (J,).
        has_held: whether a job holds anything, (J,).
    """

    def __init__(
        self,
        jobs: Sequence[JobSnapshot],
        supply: Supply,
        room: FloatArray,
        listed: tuple[Remembered, IntArray],
        values: tuple[FloatArray, FloatArray],
    ) -> None:
        self.jobs, self.supply, self.room = jobs, supply, room
        memory, rows = listed
        self.value_of_time, self.bid = values
        self.lists = memory.lists.take(rows)
        self._rows, self._seconds_per_example = rows, memory.lists.seconds_per_example
        self.has_held = self.lists.exists[:, 0]

    @cached_property
    def uses(self) -> FloatArray:
        """What each candidate takes of each limit, (R, J, M)."""
        uses: FloatArray = self.supply.unit_uses[:, self.lists.offer] * self.lists.instances
        return uses

    @cached_property
    def rate(self) -> FloatArray:
        """Useful examples a second by the mean time that one takes, (J, M)."""
        return 1.0 / self.lists.mean_seconds

    @cached_property
    def remaining(self) -> FloatArray:
        """Useful examples left; where nobody knows, those of an hour or of its age, (J,)."""
        known = np.array([knows_the_end(job) for job in self.jobs])
        told = np.array([job.remaining_examples or 0.0 for job in self.jobs])
        age = np.array(
            [self.supply.as_of_seconds(job) - job.submitted_seconds for job in self.jobs]
        )
        guess = self._reference_rate * np.maximum(UNKNOWN_REMAINING_SECONDS, age)
        remaining: FloatArray = np.where(known, np.maximum(told, 0.0), guess)
        return remaining

    @cached_property
    def work(self) -> FloatArray:
        """Useful examples over which a decision counts, (J,)."""
        dwell = [job.switching.dwell_seconds for job in self.jobs]
        lasts = np.array([np.inf if each is None else each for each in dwell])
        work: FloatArray = np.minimum(self.remaining, self._reference_rate * lasts)
        return work

    @cached_property
    def _reference_rate(self) -> FloatArray:
        price = np.where(self.lists.exists, self.lists.usd_per_second, np.inf)
        reference = np.where(self.has_held, 0, price.argmin(axis=1))
        return self.rate[np.arange(len(self.jobs)), reference]

    @cached_property
    def ends(self) -> End:
        """The candidates as ends of changes, (J, M)."""
        lists, terms = self.lists, self.supply.terms
        instances = lists.instances
        costs = [job.switching for job in self.jobs]
        checkpoint = np.array([[each.checkpoint_bytes] for each in costs])
        of_jobs = np.arange(len(self.jobs))[:, None]
        billed = billed_starts_of_jobs(costs, terms)[of_jobs, lists.offer]
        fill = fills_of_jobs(costs, terms)
        return End(
            offer=lists.offer,
            instances=instances,
            devices_used=lists.devices_used,
            usd_per_second=lists.usd_per_second,
            rate=self.rate,
            unit_usd_per_second=terms.usd_per_second[lists.offer],
            start_seconds=fill[of_jobs, lists.offer] + billed,
            billed_start_seconds=billed,
            is_sure=terms.is_sure[lists.offer],
            network=terms.network[lists.offer],
            upload_usd=checkpoint * terms.upload_usd_per_byte[lists.offer],
            download_usd=checkpoint * instances * terms.download_usd_per_byte[lists.offer],
        )

    @cached_property
    def held(self) -> End:
        """What is held as an end of changes, (J, 1)."""
        return End(*(getattr(self.ends, each.name)[:, :1] for each in fields(End)))

    @cached_property
    def halts(self) -> Halts:
        """Those of each job, (J, 1)."""
        costs = [job.switching for job in self.jobs]
        return Halts(
            pause_seconds=np.array([[each.pause_seconds] for each in costs]),
            restore_seconds=np.array([[each.restore_seconds] for each in costs]),
            carry_seconds=np.array([[each.carry_seconds] for each in costs]),
        )

    @cached_property
    def _may_stand_by(self) -> BoolArray:
        """Whether what a job holds is paused while another kind is looked at, (J, 1)."""
        lone: BoolArray = np.array([job.study is None for job in self.jobs])
        return (lone & self.has_held)[:, None]

    @cached_property
    def restart_seconds(self) -> FloatArray:
        """What a start from nothing takes beside its boot, (J, 1)."""
        has_run = np.array([[job.spent_usd > 0] for job in self.jobs])
        return np.where(has_run, self.halts.restore_seconds, 0.0)

    @cached_property
    def _fits_beside(self) -> BoolArray:
        return np.asarray(fits(self.uses, self.room).all(axis=0))

    def switches(self, value_of_time: FloatArray | None) -> Switches:
        """To each candidate from what is held, or from nothing, (J, M): `switches` of one job."""
        there = between(self.held, self.ends, self.halts, self._fits_beside, value_of_time)
        standby = standby_of(self.jobs, self.supply.terms.index)
        if standby is not None:
            there = with_standby(there, self.ends, standby, self.halts.pause_seconds)
        if self.has_held.all():
            return there
        start = from_nothing(self.ends, self.restart_seconds)
        return Switches(
            *(
                np.where(self.has_held[:, None], getattr(there, name), getattr(start, name))
                for name in (each.name for each in fields(Switches))
            )
        )

    @cached_property
    def taken(self) -> Switches:
        """What changing to each candidate takes at the job's value of time, (J, M)."""
        return self.switches(self.value_of_time[:, None])

    @cached_property
    def choices(self) -> Choices:
        """What each job would choose by itself."""
        expected, mean, better = self._costs()
        lists, has = self.lists, self.has_held
        can_stay = has & lists.allowed[:, 0]
        moving = np.array(
            [job.trained is not job.held and job.trained != job.held for job in self.jobs]
        )
        under_way = can_stay & moving
        staying = can_stay & (moving | ~lists.measured[:, 0])
        smaller = (lists.offer == lists.offer[:, :1]) & (lists.instances <= lists.instances[:, :1])
        sure = ~lists.measured | (better >= SURE_SHARE)
        open_to_it = lists.allowed & (sure | ~can_stay[:, None])
        best = np.where(open_to_it, expected, np.inf).argmin(axis=1)
        least = np.where(open_to_it, expected, np.inf).min(axis=1)
        holds = staying | (can_stay & ~(least < expected[:, 0]))
        doubtful = can_stay[:, None] & ~open_to_it & (expected < expected[:, :1])
        allowed = lists.allowed & np.where(staying[:, None], smaller, ~doubtful)
        nothing = ~lists.allowed.any(axis=1)
        target = np.where(nothing, -1, np.where(holds, 0, best))
        grounds = (Why.LEAST_COST, Why.NOTHING_ALLOWED, Why.UNMEASURED, Why.UNDER_WAY)
        ground = np.select([nothing, under_way, staying], [1, 3, 2], 0)
        why = [grounds[each] for each in ground.tolist()]
        return Choices(target, why, allowed, expected, mean, better)

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Parts of the jobs, and the seconds per example of their candidates, (K, J, M)."""
        width = self.lists.offer.shape[1]
        for start in range(0, len(self.jobs), _BLOCK):
            block = slice(start, start + _BLOCK)
            seconds = self._seconds_per_example[self._rows[block], :, :width].transpose(1, 0, 2)
            yield block, np.ascontiguousarray(seconds, dtype=np.float64)

    def _costs(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """V, the mean of J, and where it is below that of what is held; as `wish` has them."""
        taken, ends, value = self.taken, self.ends, self.value_of_time[:, None]
        paid = ends.usd_per_second
        fixed = taken.boot_usd + standing_usd(taken, paid, value)
        then, has_way = self._ways_on(fixed)
        measure = np.array([[job.switching.measure_seconds] for job in self.jobs])
        on = between(ends, _at(ends, then), self.halts, self._fits_beside_each(then), value)
        kept = self._may_stand_by & kept_on_standby(self.held, ends, taken)
        standby_usd = measure * paid[:, :1]
        on = way_back(on, kept, standby_usd, self.halts.pause_seconds)
        looks = fixed + on.boot_usd + standing_usd(on, _along(paid, then), value)
        looked = measure + np.where(on.works_on, on.ready_seconds, 0.0)
        known = self.lists.measured | ~has_way[:, None]
        work = np.broadcast_to(self.work[:, None], known.shape)
        meanwhile = self.meanwhile(taken)
        found = np.empty((3, *known.shape))
        for block, seconds in self.blocks():
            price = (paid + value)[block] * seconds
            held_price, held_seconds = spread(price), spread(seconds)
            done = np.minimum(meanwhile[block] / held_seconds, work[block])
            cost = fixed[block] + done * held_price + (work[block] - done) * price
            tried = np.minimum(looked[block] / seconds, work[block] - done)
            onward = _along(price, then[block])
            by_way_of = looks[block] + tried * price + (work[block] - done - tried) * onward
            by_way_of = by_way_of + done * held_price
            least = np.where(known[block], cost, np.minimum(cost, by_way_of))
            found[0, block] = least.mean(axis=0)
            found[1, block] = cost.mean(axis=0)
            found[2, block] = (cost < spread(cost)).mean(axis=0)
        return found[0], found[1], found[2]

    def _ways_on(self, fixed: FloatArray) -> tuple[IntArray, BoolArray]:
        """Where to after a look, (J, 1), as `ways_on` of one job, and which have a way, (J,).

        Back to what is held, or where nothing is on to the best of what was measured.
        """
        lists, value = self.lists, self.value_of_time[:, None]
        price = (self.ends.usd_per_second + value) * lists.mean_seconds
        known = lists.allowed & lists.measured
        cost = np.where(known, fixed + self.work[:, None] * price, np.inf)
        then = np.where(self.has_held, 0, cost.argmin(axis=1))[:, None]
        return then, self.has_held | known.any(axis=1)

    def _fits_beside_each(self, then: IntArray) -> BoolArray:
        """Whether each candidate has room beside where it is gone on to, (J, M)."""
        uses = self.uses + np.where(self.has_held[:, None], 0.0, _along(self.uses, then))
        return np.asarray(fits(uses, self.room).all(axis=0))

    def meanwhile(self, taken: Switches) -> FloatArray:
        """For how long what is held works on, (J, M)."""
        works_on = taken.works_on & self.has_held[:, None]
        return np.where(works_on, taken.ready_seconds, 0.0)


def _along(values: Any, then: IntArray) -> Any:
    """Of each job, `values` (..., J, M) at one candidate: (..., J, 1), of the same type."""
    one_of_each = np.broadcast_to(then, (*values.shape[:-1], 1))
    return np.take_along_axis(values, one_of_each, axis=-1)


def _at(ends: End, then: IntArray) -> End:
    """One candidate of each job as an end of changes, (J, 1)."""
    return End(*(_along(getattr(ends, each.name), then) for each in fields(End)))


def spread(draws: FloatArray) -> FloatArray:
    """What is held, (K, J, 1), beside every candidate, (K, J, M)."""
    return np.repeat(draws[:, :, :1], draws.shape[2], axis=2)
