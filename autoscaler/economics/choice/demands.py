"""Choices of single jobs with the supply to themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from autoscaler.domain.plan import ReasonCode
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.allocation.candidates import Candidates, candidates
from autoscaler.economics.allocation.remaining import (
    knows_the_end,
    remaining_work,
    unknown_work,
    work_ahead,
)
from autoscaler.economics.choice.exploration import (
    expected_cost,
    fallback_allocations,
    fewest,
    surely_better,
    worth_starting_on,
)
from autoscaler.economics.choice.requirements import Requirement, affordable, requirement
from autoscaler.economics.choice.sequence import best_sequences, cost_of_changing_now, due_now
from autoscaler.economics.choice.switching import (
    SwitchContext,
    cost_to_finish,
    cost_via_measurement,
)
from autoscaler.economics.pricing.objectives import MOST_TIMES_DEAREST, PriceRange, price_range
from autoscaler.economics.pricing.standby import standby_of_one
from autoscaler.economics.supply.caches import CacheSection, IdentityKey
from autoscaler.economics.supply.supply import BoolArray, Supply
from autoscaler.goodput.throughput import FloatArray

# Cached choices, and approximate number of (K, A) tables in one of them.
_SECTION: CacheSection[Demand] = CacheSection(100_000_000)
_TABLES = 3
# Smallest work in useful examples for prices per example.
_SMALLEST_WORK = 1e-9


class ChoiceReason(Enum):
    """Category of a job's choice."""

    STOPS = ReasonCode.STOPS
    NOTHING_ALLOWED = ReasonCode.NOTHING_ALLOWED
    HOLDS_UNKNOWN = ReasonCode.HOLDS_UNKNOWN
    UNDER_WAY = ReasonCode.UNDER_WAY
    UNMEASURED = ReasonCode.UNMEASURED
    FIRST_START = ReasonCode.FIRST_START
    STAGES = ReasonCode.STAGES
    LEAST_COST = ReasonCode.LEAST_COST


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """Choice of one job with the supply to itself, within its own bounds.

    Attributes:
        job: the job.
        at: what it may change to, and at what cost.
        requirement: what its objective requires now.
        prices: prices that it may pay.
        remaining: useful examples left, or a guess.
        work: useful examples over which its choice counts.
        why: category of its choice.
        target: index of the chosen candidate; None for nothing.
        eligible: candidates that it may hold instead, (A,).
        expected_usd: V of each candidate, $, (A,); 0 where nothing was compared.
        cost: J of each candidate, $, (K, A).
        due: candidate that follows the held one and must be ordered now; None for nothing.
    """

    job: JobSnapshot
    at: SwitchContext
    requirement: Requirement
    prices: PriceRange
    remaining: float
    work: float
    why: ChoiceReason
    target: int | None
    eligible: BoolArray
    expected_usd: FloatArray
    cost: FloatArray
    due: int | None = None

    @property
    def bid(self) -> float:
        """Value of time with which the job competes, $ per second; above 0."""
        lowest_bid = self.prices.least(self.job.waited_seconds)
        return max(self.requirement.value_of_time, self.requirement.least_bid, lowest_bid)


def demand(
    job: JobSnapshot, supply: Supply, room: FloatArray, most_times: float = MOST_TIMES_DEAREST
) -> Demand:
    """Return the job's choice with the supply to itself, cached for equal inputs.

    Args:
        job: the job.
        supply: offers and limits.
        room: room that the limits leave beside all instances held by all jobs, (R,).
        most_times: highest value of time, as a multiple of the price of the largest allocation.
    """
    planned_at = (
        None if job.as_of_seconds is not None and not supply.terms.until else supply.now_seconds
    )
    parts = IdentityKey(job), IdentityKey(supply.terms), planned_at, supply.replan_seconds
    key, cache = (*parts, room.tobytes(), most_times), supply.cache.of(_SECTION)
    cached_demand = cache.get(key)
    if cached_demand is None:
        cached_demand = _demand(job, supply, room, most_times)
        cache.put(key, cached_demand, _TABLES * cached_demand.cost.nbytes)
    return cached_demand


def _demand(job: JobSnapshot, supply: Supply, room: FloatArray, most_times: float) -> Demand:
    found_candidates = candidates(job, supply)
    if job.objective.budget_usd is not None:
        found_candidates = replace(
            found_candidates,
            allowed=found_candidates.allowed & affordable(job, supply, found_candidates),
        )
    if _has_unjudged_deadline(job):
        found_candidates = replace(found_candidates, allowed=_without_wait(found_candidates))
    at = SwitchContext(
        found_candidates,
        job.switching,
        room,
        has_run=job.spent_usd > 0,
        standby=standby_of_one(job, supply.terms.index),
        may_stand_by=job.may_stand_by,
    )
    prices = price_range(job, supply, most_times)
    requirements = requirement(job, at, supply, prices)
    remaining = remaining_work(job, supply, found_candidates)
    work = work_ahead(job, remaining, found_candidates)
    costs = _costs(job, at, (requirements.value_of_time, work), supply.replan_seconds)
    unchosen = Demand(
        job=job,
        at=at,
        requirement=requirements,
        prices=prices,
        remaining=remaining,
        work=work,
        why=ChoiceReason.LEAST_COST,
        target=None,
        eligible=found_candidates.allowed,
        expected_usd=expected_cost(found_candidates, costs.cost, costs.via_measurement),
        cost=costs.cost,
        due=costs.due,
    )
    if requirements.stop is not None:
        return replace(
            unchosen, why=ChoiceReason.STOPS, eligible=np.zeros_like(found_candidates.allowed)
        )
    if found_candidates.held is None and _holds_unknown(job, supply):
        return replace(
            unchosen,
            why=ChoiceReason.HOLDS_UNKNOWN,
            eligible=np.zeros_like(found_candidates.allowed),
        )
    if not found_candidates.allowed.any():
        return replace(unchosen, why=ChoiceReason.NOTHING_ALLOWED)
    return _chosen(unchosen)


@dataclass(frozen=True, slots=True, eq=False)
class _Costs:
    """J of each candidate, and J by way of each, (K, A); `due` is as in `Demand`."""

    cost: FloatArray
    via_measurement: FloatArray
    due: int | None = None


def _costs(
    job: JobSnapshot, at: SwitchContext, task: tuple[float, float], replan_seconds: float
) -> _Costs:
    """Return the costs of a job's candidates.

    `task` is the value of time, $ per second, and the work over which the choice counts.
    """
    job_candidates, (value, known_work) = at.candidates, task
    work: float | FloatArray = known_work
    if len(job_candidates) and not (knows_the_end(job) or _was_measured(job)):
        work = unknown_work(job_candidates)
    cost = cost_to_finish(at, value, work)
    ways = fallback_allocations(job_candidates, cost)
    if job_candidates.ahead is None:
        return _Costs(cost, cost_via_measurement(at, value, work, ways))
    sequences = best_sequences(at, value, known_work)
    sequence_cost = cost_of_changing_now(at, sequences, known_work)
    price = (job_candidates.usd_per_second + value) * job_candidates.seconds_per_example
    rest_usd_per_example = price - (cost - sequence_cost) / max(known_work, _SMALLEST_WORK)
    via_measurement = cost_via_measurement(
        at, value, work, replace(ways, usd_per_example=rest_usd_per_example)
    )
    return _Costs(sequence_cost, via_measurement, due_now(at, sequences, replan_seconds))


def _holds_unknown(job: JobSnapshot, supply: Supply) -> bool:
    """Return whether the held allocation has no offer any more, or no model."""
    if job.held is None:
        return False
    offer = supply.offer(job.held.offer)
    bounds = job.instances
    is_within = bounds.minimum <= job.held.instances <= bounds.maximum
    return is_within and (offer is None or offer.device_kind not in job.models)


def _chosen(open_demand: Demand) -> Demand:
    job, job_candidates, stages = (
        open_demand.job,
        open_demand.at.candidates,
        open_demand.requirement.stages,
    )
    held = job_candidates.held
    if held is not None and job_candidates.allowed[held]:
        if job.trained != job.held:
            return _staying_demand(open_demand, ChoiceReason.UNDER_WAY, held)
        if not job_candidates.measured[held]:
            return _staying_demand(open_demand, ChoiceReason.UNMEASURED, held)
    if stages is not None:
        return _capped_at_target(
            replace(open_demand, why=ChoiceReason.STAGES, target=stages.first)
        )
    if held is None and not _was_measured(job):
        chosen = _first_start_demand(open_demand)
    else:
        chosen = _best_demand(open_demand)
    return _capped_at_target(chosen) if chosen.requirement.least_bid else chosen


def _staying_demand(open_demand: Demand, reason: ChoiceReason, held: int) -> Demand:
    """Return the choice to complete or measure the held allocation; it may only shrink."""
    job_candidates, sizes = open_demand.at.candidates, open_demand.at.candidates.sizes
    is_smaller = (sizes.offer == sizes.offer[held]) & (sizes.instances <= sizes.instances[held])
    return replace(
        open_demand, why=reason, target=held, eligible=job_candidates.allowed & is_smaller
    )


def _was_measured(job: JobSnapshot) -> bool:
    return any(model.measured for model in job.models.values())


def _has_unjudged_deadline(job: JobSnapshot) -> bool:
    """Return whether the time left to a deadline can't be judged yet."""
    has_deadline = job.objective.deadline_seconds is not None
    return has_deadline and job.held is None and not _was_measured(job)


def _without_wait(job_candidates: Candidates) -> BoolArray:
    """Return the allowed candidates without a wait for capacity, or all allowed ones, (A,)."""
    has_wait = np.array(
        [offer.fill_seconds > 0 for offer in job_candidates.offers], dtype=np.bool_
    )
    at_once: BoolArray = job_candidates.allowed & ~has_wait[job_candidates.sizes.offer]
    return at_once if at_once.any() else job_candidates.allowed


def _first_start_demand(open_demand: Demand) -> Demand:
    job_candidates = open_demand.at.candidates
    is_worth_it = worth_starting_on(job_candidates, open_demand.requirement.value_of_time)
    target = int(np.argmin(np.where(is_worth_it, open_demand.expected_usd, np.inf)))
    return replace(
        open_demand, why=ChoiceReason.FIRST_START, target=target, eligible=fewest(job_candidates)
    )


def _best_demand(open_demand: Demand) -> Demand:
    """Return the candidate of least V, if it is surely cheaper than staying."""
    job_candidates, expected = open_demand.at.candidates, open_demand.expected_usd
    held = job_candidates.held
    if held is None or not job_candidates.allowed[held]:
        target = int(np.argmin(np.where(job_candidates.allowed, expected, np.inf)))
        return replace(open_demand, target=target)
    stays_usd = float(expected[held])
    is_open = job_candidates.allowed & surely_better(job_candidates, open_demand.cost)
    best = int(np.argmin(np.where(is_open, expected, np.inf)))
    if not is_open.any() or not expected[best] < stays_usd:
        best = held if open_demand.due is None else open_demand.due
    is_doubtful = ~is_open & (expected < stays_usd)
    return replace(open_demand, target=best, eligible=job_candidates.allowed & ~is_doubtful)


def _capped_at_target(chosen: Demand) -> Demand:
    """Limit the eligible candidates to those that cost no more than the chosen one.

    A bid for a deadline is not for more than the deadline needs.
    """
    if chosen.target is None:
        return chosen
    price = chosen.at.candidates.usd_per_second
    eligible = chosen.eligible & (price <= price[chosen.target])
    return replace(chosen, eligible=np.asarray(eligible))
