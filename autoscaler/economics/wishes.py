"""What each job would hold if it had the supply to itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.aims import Aim, affordable, aim
from autoscaler.economics.candidates import Candidates, candidates
from autoscaler.economics.displacing import starting_instances
from autoscaler.economics.exploration import (
    expected_cost,
    fewest,
    surely_better,
    ways_on,
    worth_starting_on,
)
from autoscaler.economics.keeping import Kept, Same
from autoscaler.economics.objectives import MOST_TIMES_DEAREST, PriceRange, price_range
from autoscaler.economics.remaining import knows_the_end, remaining_work, unknown_work, work_ahead
from autoscaler.economics.sequence import best_sequences, cost_of_changing_now, due_now
from autoscaler.economics.standby import standby_of_one
from autoscaler.economics.supply import BoolArray, Supply
from autoscaler.economics.switching import Ground, cost_by_way_of, cost_to_finish
from autoscaler.goodput.throughput import FloatArray

# So much is kept of wishes, each of about so many tables of a number for each draw and candidate.
_KEPT_BYTES = 100_000_000
_TABLES = 3
# Useful examples: of less a price is nothing to go by.
_SMALLEST_WORK = 1e-9


class Why(Enum):
    """On what ground a job wishes what it does."""

    STOPS = auto()
    NOTHING_ALLOWED = auto()
    HOLDS_UNKNOWN = auto()
    UNDER_WAY = auto()
    UNMEASURED = auto()
    FIRST_START = auto()
    STAGES = auto()
    LEAST_COST = auto()


@dataclass(frozen=True, slots=True, eq=False)
class Wish:
    """One job's own best, its limits alone considered.

    Attributes:
        job: whose it is.
        at: from where it would change.
        aim: what its objective asks for.
        prices: what it may pay.
        remaining: useful examples left to do, or a guess.
        work: those over which its choice counts.
        why: the ground of its choice.
        target: index of the candidate; None for nothing.
        eligible: what it may hold if it can't have its wish, (A,).
        expected_usd: V of each candidate, (A,); 0 where nothing was compared.
        cost: J of each, (K, A).
        due: what follows next on what is held and has to be ordered now to be there in time.
    """

    job: JobSnapshot
    at: Ground
    aim: Aim
    prices: PriceRange
    remaining: float
    work: float
    why: Why
    target: int | None
    eligible: BoolArray
    expected_usd: FloatArray
    cost: FloatArray
    due: int | None = None

    @property
    def bid(self) -> float:
        """The value of time with which the job competes, $ per second; above 0."""
        least = self.prices.least(self.job.waited_seconds)
        return max(self.aim.value_of_time, self.aim.least_bid, least)


_KEPT: Kept[Wish] = Kept(_KEPT_BYTES)


def wish(
    job: JobSnapshot, supply: Supply, room: FloatArray, most_times: float = MOST_TIMES_DEAREST
) -> Wish:
    """What the job would choose by itself; of the same job, and as much room, what it did before.

    Args:
        job: the job.
        supply: what is offered.
        room: what the limits leave beside all that is held now, by all jobs, (R,).
        most_times: the highest value of time, in prices of the job's largest allocation.
    """
    moment = (
        None if job.as_of_seconds is not None and not supply.terms.until else supply.now_seconds
    )
    same = Same(job), Same(supply.terms), moment, supply.replan_seconds
    key = *same, room.tobytes(), most_times
    found = _KEPT.get(key)
    if found is None:
        found = _wish(job, supply, room, most_times)
        _KEPT.put(key, found, _TABLES * found.cost.nbytes)
    return found


def _wish(job: JobSnapshot, supply: Supply, room: FloatArray, most_times: float) -> Wish:
    every = candidates(job, supply)
    if job.objective.budget_usd is not None:
        every = replace(every, allowed=every.allowed & affordable(job, supply, every))
    if _hurries(job):
        every = replace(every, allowed=_at_once(every))
    at = Ground(
        every,
        job.switching,
        room,
        has_run=job.spent_usd > 0,
        standby=standby_of_one(job, supply.terms.index),
        may_stand_by=job.study is None,
        starting_instances=starting_instances(job),
    )
    prices = price_range(job, supply, most_times)
    asked = aim(job, at, supply, prices)
    remaining = remaining_work(job, supply, every)
    work = work_ahead(job, remaining, every)
    costs = _costs(job, at, (asked.value_of_time, work), supply.replan_seconds)
    unchosen = Wish(
        job=job,
        at=at,
        aim=asked,
        prices=prices,
        remaining=remaining,
        work=work,
        why=Why.LEAST_COST,
        target=None,
        eligible=every.allowed,
        expected_usd=expected_cost(every, costs.cost, costs.by_way_of),
        cost=costs.cost,
        due=costs.due,
    )
    if asked.stop is not None:
        return replace(unchosen, why=Why.STOPS, eligible=np.zeros_like(every.allowed))
    if every.held is None and _holds_unknown(job, supply):
        return replace(unchosen, why=Why.HOLDS_UNKNOWN, eligible=np.zeros_like(every.allowed))
    if not every.allowed.any():
        return replace(unchosen, why=Why.NOTHING_ALLOWED)
    return _chosen(unchosen)


@dataclass(frozen=True, slots=True, eq=False)
class _Costs:
    """J of each candidate, (K, A), and J by way of each; what is `due` as `Wish` has it."""

    cost: FloatArray
    by_way_of: FloatArray
    due: int | None = None


def _costs(
    job: JobSnapshot, at: Ground, task: tuple[float, float], replan_seconds: float
) -> _Costs:
    """`task` is the value of time and the work over which a choice counts."""
    every, (value, known) = at.candidates, task
    work: float | FloatArray = known
    if len(every) and not (knows_the_end(job) or _was_measured(job)):
        work = unknown_work(every)
    cost = cost_to_finish(at, value, work)
    ways = ways_on(every, cost)
    if every.ahead is None:
        return _Costs(cost, cost_by_way_of(at, value, work, ways))
    sequences = best_sequences(at, value, known)
    sequenced = cost_of_changing_now(at, sequences, known)
    price = (every.usd_per_second + value) * every.seconds_per_example
    rest = price - (cost - sequenced) / max(known, _SMALLEST_WORK)
    by_way_of = cost_by_way_of(at, value, work, replace(ways, usd_per_example=rest))
    return _Costs(sequenced, by_way_of, due_now(at, sequences, replan_seconds))


def _holds_unknown(job: JobSnapshot, supply: Supply) -> bool:
    """Whether the job holds what nobody offers any more, or what there is no model of."""
    if job.held is None:
        return False
    offer = supply.offer(job.held.offer)
    bounds = job.instances
    is_within = bounds.minimum <= job.held.instances <= bounds.maximum
    return is_within and (offer is None or offer.device_kind not in job.models)


def _chosen(open_wish: Wish) -> Wish:
    job, every, stages = open_wish.job, open_wish.at.candidates, open_wish.aim.stages
    held = every.held
    if held is not None and every.allowed[held]:
        if job.trained != job.held:
            return _staying(open_wish, Why.UNDER_WAY, held)
        if not every.measured[held]:
            return _staying(open_wish, Why.UNMEASURED, held)
    if stages is not None:
        return _no_dearer(replace(open_wish, why=Why.STAGES, target=stages.first))
    if held is None and not _was_measured(job):
        chosen = _starting(open_wish)
    else:
        chosen = _improving(open_wish)
    return _no_dearer(chosen) if chosen.aim.least_bid else chosen


def _staying(open_wish: Wish, why: Why, held: int) -> Wish:
    """What was decided is left to come about, and to be measured; it may only shrink."""
    every, sizes = open_wish.at.candidates, open_wish.at.candidates.sizes
    smaller = (sizes.offer == sizes.offer[held]) & (sizes.instances <= sizes.instances[held])
    return replace(open_wish, why=why, target=held, eligible=every.allowed & smaller)


def _was_measured(job: JobSnapshot) -> bool:
    return any(model.measured for model in job.models.values())


def _hurries(job: JobSnapshot) -> bool:
    """Whether it can't be told yet how much time there is to its deadline."""
    has_deadline = job.objective.deadline_seconds is not None
    return has_deadline and job.held is None and not _was_measured(job)


def _at_once(every: Candidates) -> BoolArray:
    """What need not be waited for, (A,), if there is anything."""
    waits = np.array([offer.fill_seconds > 0 for offer in every.offers], dtype=np.bool_)
    at_once: BoolArray = every.allowed & ~waits[every.sizes.offer]
    return at_once if at_once.any() else every.allowed


def _starting(open_wish: Wish) -> Wish:
    every = open_wish.at.candidates
    worth = worth_starting_on(every, open_wish.aim.value_of_time)
    target = int(np.argmin(np.where(worth, open_wish.expected_usd, np.inf)))
    return replace(open_wish, why=Why.FIRST_START, target=target, eligible=fewest(every))


def _improving(open_wish: Wish) -> Wish:
    """The least V, if it is less than what going on costs and does not rest on chance."""
    every, expected = open_wish.at.candidates, open_wish.expected_usd
    held = every.held
    if held is None or not every.allowed[held]:
        target = int(np.argmin(np.where(every.allowed, expected, np.inf)))
        return replace(open_wish, target=target)
    stays_usd = float(expected[held])
    open_to_choice = every.allowed & surely_better(every, open_wish.cost)
    best = int(np.argmin(np.where(open_to_choice, expected, np.inf)))
    if not open_to_choice.any() or not expected[best] < stays_usd:
        best = held if open_wish.due is None else open_wish.due
    doubtful = ~open_to_choice & (expected < stays_usd)
    return replace(open_wish, target=best, eligible=every.allowed & ~doubtful)


def _no_dearer(chosen: Wish) -> Wish:
    """Competing for its wish or what is cheaper: a bid for a deadline is for no more than that."""
    if chosen.target is None:
        return chosen
    price = chosen.at.candidates.usd_per_second
    eligible = chosen.eligible & (price <= price[chosen.target])
    return replace(chosen, eligible=np.asarray(eligible))
