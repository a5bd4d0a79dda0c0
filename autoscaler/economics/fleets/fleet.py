"""Choices of jobs at once, as arrays: of one job, or of many of one cohort.

Results of many jobs are those of `demand` for each, on the candidates of its shortlist. Arrays
over the J jobs and their M candidates are (J, M); with K draws they are (K, J, M).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.allocation.candidates import Candidates
from autoscaler.economics.allocation.cohorts import CohortKey, cohort_key
from autoscaler.economics.allocation.remaining import UNKNOWN_REMAINING_SECONDS, knows_the_end
from autoscaler.economics.choice.demands import ChoiceReason, Demand
from autoscaler.economics.choice.exploration import SURE_SHARE, fewest
from autoscaler.economics.choice.requirements import Requirement
from autoscaler.economics.choice.switching import (
    AllocationArrays,
    RestartOverheads,
    Switches,
    between,
    from_nothing,
    kept_on_standby,
    standing_usd,
    way_back,
    with_standby,
)
from autoscaler.economics.fleets.shortlist_cache import cached_shortlists, store_shortlists
from autoscaler.economics.fleets.shortlists import CandidateTable, Cells
from autoscaler.economics.pricing.objectives import price_range, value_of_time_of
from autoscaler.economics.pricing.standby import standby_of
from autoscaler.economics.pricing.starts import billed_starts_of_jobs, fills_of_jobs
from autoscaler.economics.supply.supply import BoolArray, IntArray, MarketTerms, Supply, fits
from autoscaler.goodput.formulas import formula_of
from autoscaler.goodput.throughput import FloatArray

# Number of jobs in one fleet, and in one block of arrays over all draws.
_MOST_JOBS = 512
_BLOCK = 16


def can_be_listed(job: JobSnapshot, supply: Supply) -> bool:
    """Return whether a job can be planned from its shortlist alone.

    It can't with a deadline, a budget or a noise curve. It can't before any measurement, or while
    the job holds an allocation that can't be compared.
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
    """Return the jobs grouped by cohort, in parts of at most 512.

    Every job must pass `can_be_listed`. `room` and `most_times` are as in `demand`.
    """
    jobs_by_cohort: dict[CohortKey, list[JobSnapshot]] = {}
    jobs_by_key: dict[object, list[JobSnapshot]] = {}
    for job in jobs:
        points = (model.point for model in job.models.values())
        draws = len(next(iter(job.models.values())).draws)
        key = job.instances, job.parallelism.shard, draws, *job.models, *map(formula_of, points)
        if key not in jobs_by_key:
            jobs_by_key[key] = jobs_by_cohort.setdefault(cohort_key(job, supply), [])
        jobs_by_key[key].append(job)
    parts = [
        _fleets_of_cohort(cohort_jobs, supply, room, most_times)
        for cohort_jobs in jobs_by_cohort.values()
    ]
    return list(chain.from_iterable(parts))


def _fleets_of_cohort(
    jobs: Sequence[JobSnapshot], supply: Supply, room: FloatArray, most_times: float
) -> Iterator[Fleet]:
    prices = price_range(jobs[0], supply, most_times)
    value = np.array([value_of_time_of(job, prices) for job in jobs])
    lowest_bids = np.array([prices.least(job.waited_seconds) for job in jobs])
    bids = np.maximum(value, lowest_bids)
    ages = [supply.as_of_seconds(job) - job.submitted_seconds for job in jobs]
    values = np.array([value, bids, ages])
    memory = cached_shortlists(jobs[0], cohort_key(jobs[0], supply), supply)
    rows = memory.rows(jobs, supply, bids)
    store_shortlists(memory, supply)
    for start in range(0, len(jobs), _MOST_JOBS):
        part = slice(start, start + _MOST_JOBS)
        listed = memory.lists.take(rows[part]), partial(memory.lists.draws, rows[part])
        yield Fleet(jobs[part], supply.terms, room, listed, values[:, part])


def fleet_of_one(demand: Demand) -> Fleet:
    """Return the fleet of one job with its own choice, over all its candidates."""
    candidates, sizes = demand.at.candidates, demand.at.candidates.sizes
    held, stages = candidates.held, demand.requirement.stages
    # The first column is the held candidate, or padding.
    others = np.flatnonzero(np.arange(len(candidates)) != (-1 if held is None else held))
    order = np.concatenate([[held or 0], others])
    exists = (np.arange(len(order)) > 0)[None] | (held is not None)
    lists = CandidateTable(
        offer=sizes.offer[None, order],
        instances=sizes.instances[None, order],
        devices_used=sizes.devices_used[None, order],
        usd_per_second=candidates.usd_per_second[None, order],
        mean_seconds=1.0 / candidates.rate[None, order],
        measured=candidates.measured[None, order],
        allowed=candidates.allowed[None, order] & exists,
        exists=exists,
    )
    values = np.array([[demand.requirement.value_of_time], [demand.bid], [0.0]])
    listed = lists, lambda cells: candidates.seconds_per_example[None, :, order[cells[1]]]
    fleet = Fleet([demand.job], candidates.terms, demand.at.room, listed, values)
    changes = demand.at.from_held(demand.requirement.value_of_time)
    fleet.taken = Switches(
        *(getattr(changes, name.name)[None, order] for name in fields(Switches))
    )
    fleet.requirements = [demand.requirement]
    fleet.is_bound = np.array([demand.requirement.is_bound], dtype=np.bool_)
    fleet.remaining, fleet.work = np.array([demand.remaining]), np.array([demand.work])
    cheapest, cost = None, demand.cost
    if demand.why is ChoiceReason.FIRST_START:
        price = np.where(fewest(candidates), candidates.usd_per_second, np.inf)
        cheapest = int(price.argmin())
    fleet.choices = FleetDemands(
        target=np.array([column_of(candidates, demand.target)]),
        why=[demand.why],
        eligible=demand.eligible[None, order] & exists,
        expected_usd=demand.expected_usd[None, order],
        mean_usd=cost.mean(axis=0)[None, order],
        better=(cost < cost[:, order[:1]]).mean(axis=0)[None, order],
        cheapest=np.array([column_of(candidates, cheapest)]),
        later=np.array([column_of(candidates, None if stages is None else stages.then)]),
    )
    return fleet


def column_of(candidates: Candidates, index: int | None) -> int:
    """Return the column of a candidate in the fleet of its job; -1 for None."""
    if index is None or index == candidates.held:
        return -1 if index is None else 0
    return index + (candidates.held is None or index < candidates.held)


@dataclass(frozen=True, slots=True, eq=False)
class FleetDemands:
    """Choice of each job with the supply to itself.

    Attributes:
        target: index of the chosen candidate, (J,); -1 for nothing.
        why: category of each choice, by job.
        eligible: candidates that the job may hold instead, (J, M).
        expected_usd: V of each candidate, (J, M).
        mean_usd: mean of J over the draws, (J, M).
        better: share of draws in which J is less than that of the held candidate, (J, M).
        cheapest: cheapest candidate with the fewest instances, for a first start, (J,); else -1.
        later: second stage for a deadline or budget, (J,); -1 for none.
    """

    target: IntArray
    why: Sequence[ChoiceReason]
    eligible: BoolArray
    expected_usd: FloatArray
    mean_usd: FloatArray
    better: FloatArray
    cheapest: IntArray
    later: IntArray


class Fleet:
    """J jobs of one cohort with M candidates each; the first is the held one.

    R is the number of limits.

    Attributes:
        jobs: J jobs.
        lists: shortlists of the jobs.
        value_of_time: $ per second, (J,).
        bid: value of time with which each job competes, $ per second, (J,).
        has_held: whether each job holds anything, (J,).
    """

    def __init__(
        self,
        jobs: Sequence[JobSnapshot],
        terms: MarketTerms,
        room: FloatArray,
        listed: tuple[CandidateTable, Callable[[Cells], FloatArray]],
        values: FloatArray,
    ) -> None:
        self.jobs, self.terms, self.room = jobs, terms, room
        self.lists, self._seconds_per_example = listed
        self.value_of_time, self.bid, self._age_seconds = values
        self.has_held = self.lists.exists[:, 0]

    @cached_property
    def requirements(self) -> Sequence[Requirement]:
        """Requirement of each job's objective."""
        return [Requirement(value) for value in self.value_of_time.tolist()]

    @cached_property
    def is_bound(self) -> BoolArray:
        """`Requirement.is_bound` of each job, (J,); jobs of cohorts have no deadline or budget."""
        return np.zeros(len(self.jobs), dtype=np.bool_)

    @cached_property
    def uses(self) -> FloatArray:
        """Use of each limit by each candidate, (R, J, M)."""
        uses: FloatArray = self.terms.unit_uses[:, self.lists.offer] * self.lists.instances
        return uses

    @cached_property
    def rate(self) -> FloatArray:
        """Useful examples a second: inverse of the mean seconds per example, (J, M)."""
        return 1.0 / self.lists.mean_seconds

    @cached_property
    def remaining(self) -> FloatArray:
        """Useful examples left, (J,); a guess where the end is unknown, as `remaining_work`."""
        is_known = np.array([knows_the_end(job) for job in self.jobs])
        reported = np.array([job.remaining_examples or 0.0 for job in self.jobs])
        guess = self._reference_rate * np.maximum(UNKNOWN_REMAINING_SECONDS, self._age_seconds)
        remaining: FloatArray = np.where(is_known, np.maximum(reported, 0.0), guess)
        return remaining

    @cached_property
    def work(self) -> FloatArray:
        """Useful examples over which a decision counts, (J,)."""
        dwell_seconds = [job.switching.dwell_seconds for job in self.jobs]
        lasting_seconds = np.array(
            [np.inf if seconds is None else seconds for seconds in dwell_seconds]
        )
        work: FloatArray = np.minimum(self.remaining, self._reference_rate * lasting_seconds)
        return work

    @cached_property
    def _reference_rate(self) -> FloatArray:
        price = np.where(self.lists.exists, self.lists.usd_per_second, np.inf)
        reference = np.where(self.has_held, 0, price.argmin(axis=1))
        return self.rate[np.arange(len(self.jobs)), reference]

    @cached_property
    def ends(self) -> AllocationArrays:
        """Attributes of the candidates for pricing changes, (J, M)."""
        lists, terms = self.lists, self.terms
        instances = lists.instances
        costs = [job.switching for job in self.jobs]
        checkpoint = np.array([[switching.checkpoint_bytes] for switching in costs])
        of_jobs = np.arange(len(self.jobs))[:, None]
        billed = billed_starts_of_jobs(costs, terms)[of_jobs, lists.offer]
        fill = fills_of_jobs(costs, terms)
        return AllocationArrays(
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
    def held(self) -> AllocationArrays:
        """Attributes of the held candidate for pricing changes, (J, 1)."""
        return AllocationArrays(
            *(getattr(self.ends, field.name)[:, :1] for field in fields(AllocationArrays))
        )

    @cached_property
    def halts(self) -> RestartOverheads:
        """Pause, restore and carry seconds of each job, (J, 1)."""
        costs = [job.switching for job in self.jobs]
        return RestartOverheads(
            pause_seconds=np.array([[switching.pause_seconds] for switching in costs]),
            restore_seconds=np.array([[switching.restore_seconds] for switching in costs]),
            carry_seconds=np.array([[switching.carry_seconds] for switching in costs]),
        )

    @cached_property
    def _may_stand_by(self) -> BoolArray:
        """Whether held instances pause while another kind is measured, (J, 1)."""
        lone: BoolArray = np.array([job.may_stand_by for job in self.jobs])
        return (lone & self.has_held)[:, None]

    @cached_property
    def restart_seconds(self) -> FloatArray:
        """Seconds that a start from nothing adds to its boot, (J, 1)."""
        has_run = np.array([[job.spent_usd > 0] for job in self.jobs])
        return np.where(has_run, self.halts.restore_seconds, 0.0)

    @cached_property
    def _has_room_beside(self) -> BoolArray:
        return np.asarray(fits(self.uses, self.room).all(axis=0))

    def switches(self, value_of_time: FloatArray | None) -> Switches:
        """Return changes to each candidate from the held one or from nothing, (J, M)."""
        from_held = between(self.held, self.ends, self.halts, self._has_room_beside, value_of_time)
        standby = standby_of(self.jobs, self.terms.index)
        if standby is not None:
            from_held = with_standby(from_held, self.ends, standby, self.halts.pause_seconds)
        if self.has_held.all():
            return from_held
        start_from_nothing = from_nothing(self.ends, self.restart_seconds)
        return Switches(
            *(
                np.where(
                    self.has_held[:, None],
                    getattr(from_held, name),
                    getattr(start_from_nothing, name),
                )
                for name in (field.name for field in fields(Switches))
            )
        )

    @cached_property
    def taken(self) -> Switches:
        """Changes to each candidate at the job's value of time, (J, M)."""
        return self.switches(self.value_of_time[:, None])

    @cached_property
    def taken_at_bid(self) -> Switches:
        """Changes to each candidate at the job's bid, (J, M)."""
        is_value = np.array_equal(self.bid, self.value_of_time)
        return self.taken if is_value else self.switches(self.bid[:, None])

    @cached_property
    def choices(self) -> FleetDemands:
        """Choice of each job with the supply to itself."""
        expected, mean, better = self._costs()
        lists, has_held = self.lists, self.has_held
        can_stay = has_held & lists.allowed[:, 0]
        moving = np.array(
            [job.trained is not job.held and job.trained != job.held for job in self.jobs]
        )
        under_way = can_stay & moving
        staying = can_stay & (moving | ~lists.measured[:, 0])
        smaller = (lists.offer == lists.offer[:, :1]) & (lists.instances <= lists.instances[:, :1])
        sure = ~lists.measured | (better >= SURE_SHARE)
        is_open = lists.allowed & (sure | ~can_stay[:, None])
        best = np.where(is_open, expected, np.inf).argmin(axis=1)
        least_usd = np.where(is_open, expected, np.inf).min(axis=1)
        stays_held = staying | (can_stay & ~(least_usd < expected[:, 0]))
        is_doubtful = can_stay[:, None] & ~is_open & (expected < expected[:, :1])
        allowed = lists.allowed & np.where(staying[:, None], smaller, ~is_doubtful)
        has_none = ~lists.allowed.any(axis=1)
        target = np.where(has_none, -1, np.where(stays_held, 0, best))
        grounds = (
            ChoiceReason.LEAST_COST,
            ChoiceReason.NOTHING_ALLOWED,
            ChoiceReason.UNMEASURED,
            ChoiceReason.UNDER_WAY,
        )
        ground = np.select([has_none, under_way, staying], [1, 3, 2], 0)
        why = [grounds[index] for index in ground.tolist()]
        none = np.full(len(self.jobs), -1)
        return FleetDemands(target, why, allowed, expected, mean, better, none, none)

    def blocks(self) -> Iterator[tuple[Cells, FloatArray]]:
        """Yield blocks of jobs with their candidates' seconds per example, (K, block, width).

        Jobs with about as many candidates share a block of that width, so that few cells only pad
        a row.
        """
        exists = self.lists.exists
        widths = (exists * np.arange(1, exists.shape[1] + 1)).max(axis=1)
        order = np.argsort(widths, kind="stable")
        for start in range(0, len(order), _BLOCK):
            jobs = order[start : start + _BLOCK]
            cells = jobs, slice(max(int(widths[jobs[-1]]), 1))
            seconds = self._seconds_per_example(cells).transpose(1, 0, 2)
            yield cells, np.ascontiguousarray(seconds, dtype=np.float64)

    def _costs(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return V, the mean of J, and the share of draws below the held J, (J, M) each."""
        changes, ends, value = self.taken, self.ends, self.value_of_time[:, None]
        paid = ends.usd_per_second
        fixed = changes.boot_usd + standing_usd(changes, paid, value)
        onward_index, has_way = self._ways_on(fixed)
        measure = np.array([[job.switching.measure_seconds] for job in self.jobs])
        onward_change = between(
            ends,
            _allocations_at(ends, onward_index),
            self.halts,
            self._has_room_to_go_on(onward_index),
            value,
        )
        is_kept = self._may_stand_by & kept_on_standby(self.held, ends, changes)
        standby_usd = measure * paid[:, :1]
        onward_change = way_back(onward_change, is_kept, standby_usd, self.halts.pause_seconds)
        look_usd = (
            fixed
            + onward_change.boot_usd
            + standing_usd(onward_change, _take_candidate(paid, onward_index), value)
        )
        look_seconds = measure + np.where(
            onward_change.trains_during_boot, onward_change.ready_seconds, 0.0
        )
        is_known = self.lists.measured | ~has_way[:, None]
        work = np.broadcast_to(self.work[:, None], is_known.shape)
        meanwhile, paid_and_waited = self.meanwhile(changes), paid + value
        result = np.zeros((3, *is_known.shape))
        for cells, seconds in self.blocks():
            price = paid_and_waited[cells] * seconds
            done = np.minimum(meanwhile[cells] / seconds[:, :, :1], work[cells])
            left = work[cells] - done
            done_usd = done * price[:, :, :1]
            cost = fixed[cells] + done_usd
            cost += left * price
            tried = np.minimum(look_seconds[cells] / seconds, left)
            left -= tried
            via_measurement = tried * price
            via_measurement += look_usd[cells]
            onward_price = price[:, np.arange(len(cells[0])), onward_index[cells][:, 0]]
            via_measurement += left * onward_price[:, :, None]
            via_measurement += done_usd
            best_cost = np.where(is_known[cells], cost, np.minimum(cost, via_measurement))
            result[0][cells] = best_cost.mean(axis=0)
            result[1][cells] = cost.mean(axis=0)
            result[2][cells] = (cost < cost[:, :, :1]).mean(axis=0)
        return result[0], result[1], result[2]

    def _ways_on(self, fixed: FloatArray) -> tuple[IntArray, BoolArray]:
        """Return the candidate to go on to after a measurement, (J, 1), and if one exists, (J,).

        It is the held candidate, or if nothing is held the best measured one.
        """
        lists, value = self.lists, self.value_of_time[:, None]
        price = (self.ends.usd_per_second + value) * lists.mean_seconds
        is_measured = lists.allowed & lists.measured
        cost = np.where(is_measured, fixed + self.work[:, None] * price, np.inf)
        onward_index = np.where(self.has_held, 0, cost.argmin(axis=1))[:, None]
        return onward_index, self.has_held | is_measured.any(axis=1)

    def _has_room_to_go_on(self, then: IntArray) -> BoolArray:
        """Return whether each candidate has room beside its successor `then`, (J, M)."""
        uses = self.uses + np.where(self.has_held[:, None], 0.0, _take_candidate(self.uses, then))
        return np.asarray(fits(uses, self.room).all(axis=0))

    def meanwhile(self, taken: Switches) -> FloatArray:
        """Return the seconds for which held instances train during each change, (J, M)."""
        trains_during_boot = taken.trains_during_boot & self.has_held[:, None]
        return np.where(trains_during_boot, taken.ready_seconds, 0.0)


def _take_candidate(values: Any, then: IntArray) -> Any:
    """Return the values (..., J, M) at one candidate of each job, (..., J, 1)."""
    index = np.broadcast_to(then, (*values.shape[:-1], 1))
    return np.take_along_axis(values, index, axis=-1)


def _allocations_at(ends: AllocationArrays, then: IntArray) -> AllocationArrays:
    """Return the attributes of one candidate of each job, (J, 1)."""
    return AllocationArrays(
        *(_take_candidate(getattr(ends, field.name), then) for field in fields(AllocationArrays))
    )
