"""What a job's objective asks for now: a value of time, a sequence of allocations, or an end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.objective import AfterDeadline
from autoscaler.domain.offer import Purchase
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.candidates import Candidates
from autoscaler.economics.objectives import PriceRange, value_of_time, value_of_time_when_late
from autoscaler.economics.price import hull, value_of_time_between
from autoscaler.economics.remaining import knows_the_end
from autoscaler.economics.stages import (
    CHECKPOINT_SECONDS,
    Ends,
    Shortfall,
    Stages,
    plan_stages,
)
from autoscaler.economics.starts import billed_start_seconds, billed_starts_seconds, start_seconds
from autoscaler.economics.supply import BoolArray, Supply
from autoscaler.economics.switching import Ground
from autoscaler.economics.wording import duration, money, percent

# What is not in any draw, the turns of the controller above all, must not cost a deadline: of its
# time this share is kept back, or what passes until the next plan if that is less.
_MARGIN_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Aim:
    """What the objective asks for now.

    `value_of_time` is in $ per second; `stages` where a deadline or budget decides. `note` is
    what its owner should know of it, `stop` why the job has to end now. `least_bid`, in $ per
    second, is what it competes with at least for what its deadline needs now.
    """

    value_of_time: float
    stages: Stages | None = None
    note: str | None = None
    stop: str | None = None
    least_bid: float = 0.0


def aim(job: JobSnapshot, at: Ground, supply: Supply, prices: PriceRange) -> Aim:
    """What the job's objective asks for.

    A deadline or a budget is planned for as soon as it is known how much remains and something
    was measured; until then the preference decides, within what money is left. What is bought for
    a deadline that may still be kept is the least that keeps it, but for that the job bids as much
    as it may: what waiting loses can't be bought back.
    """
    objective = job.objective
    usual = Aim(value_of_time(objective, prices))
    ends = ends_of(job, supply)
    if ends.usd is not None and ends.usd < _least_to_go_on(job, supply):
        return replace(usual, stop=_budget_spent(job))
    if ends.seconds is None and ends.usd is None:
        return usual
    if ends.seconds is not None and ends.seconds <= 0:
        late = f"deadline missed by {duration(-ends.seconds)}"
        return _without_deadline(job, at, supply, prices, late)
    if not _can_be_judged(job, at):
        return replace(
            usual,
            note="deadline and budget can't be judged before it is measured",
            least_bid=_least_bid(ends, prices),
        )
    return _staged(job, at, supply, prices, ends)


def affordable(job: JobSnapshot, supply: Supply, candidates: Candidates) -> BoolArray:
    """Which candidates can be paid until the next plan and a last checkpoint, (A,).

    What waits for capacity is not billed meanwhile.
    """
    ends = ends_of(job, supply)
    if ends.usd is None:
        return np.ones(len(candidates), dtype=np.bool_)
    lasting = supply.replan_seconds + CHECKPOINT_SECONDS
    starts = billed_starts_seconds(job.switching, supply.offers)
    billed = np.array([float(offer.minimum_billed_seconds) for offer in supply.offers])
    offer = candidates.sizes.offer
    seconds = np.maximum(starts[offer] + lasting, billed[offer])
    if candidates.held is not None:
        kept = (offer == offer[candidates.held]) & (
            candidates.sizes.instances <= candidates.sizes.instances[candidates.held]
        )
        seconds = np.where(kept, lasting, seconds)
    return np.asarray(seconds * candidates.usd_per_second <= ends.usd)


def _least_to_go_on(job: JobSnapshot, supply: Supply) -> float:
    """US dollars that even the cheapest costs until the next plan and a last checkpoint."""
    lasting = supply.replan_seconds + CHECKPOINT_SECONDS
    least = []
    for index in supply.permitted(job.instances):
        offer = supply.offers[index]
        is_held = job.held is not None and job.held.offer == offer.id
        seconds = lasting + (0.0 if is_held else billed_start_seconds(job.switching, offer))
        least.append(offer.usd_per_second * max(job.instances.minimum, 1) * seconds)
    return min(least, default=0.0)


def ends_of(job: JobSnapshot, supply: Supply) -> Ends:
    """The job's deadline and budget, from now."""
    objective = job.objective
    seconds = usd = None
    if objective.deadline_seconds is not None:
        seconds = objective.deadline_seconds - supply.as_of_seconds(job)
    if objective.budget_usd is not None:
        usd = float(objective.budget_usd) - job.spent_usd
    return Ends(seconds, usd, objective.confidence)


def _staged(job: JobSnapshot, at: Ground, supply: Supply, prices: PriceRange, ends: Ends) -> Aim:
    found = stages_that_keep(ends, at, job.remaining_examples or 0.0, supply.replan_seconds)
    if isinstance(found, Stages):
        return Aim(
            value_of_time=_implied_value(at.candidates, found, ends, prices),
            stages=found,
            note=_kept(job, ends, found),
            least_bid=_least_bid(ends, prices),
        )
    if ends.seconds is None:
        return Aim(0.0, note=_short_of_budget(job, found))
    return _without_deadline(job, at, supply, prices, _out_of_reach(job, ends, found))


def stages_that_keep(
    ends: Ends, at: Ground, work: float, replan_seconds: float
) -> Stages | Shortfall:
    """The stages that keep the ends, a deadline with a margin if that can be.

    Reclaims are in no draw. Spot is planned with only where after the last of them there would
    still be time to start on what is not reclaimed, or where nothing else keeps the deadline.
    """
    firm = _firm(at.candidates)
    is_choice = (firm & at.candidates.allowed).any() and not firm.all()
    if ends.seconds is None or not is_choice:
        return _with_margin(at, work, ends, replan_seconds)
    early = replace(ends, seconds=ends.seconds - _recovery_seconds(at, firm))
    found = _with_margin(at, work, early, replan_seconds)
    if isinstance(found, Stages) and found.chance >= ends.confidence:
        return found
    allowed = at.candidates.allowed & firm
    without_spot = replace(at, candidates=replace(at.candidates, allowed=allowed))
    found = _with_margin(without_spot, work, ends, replan_seconds)
    return found if isinstance(found, Stages) else _with_margin(at, work, ends, replan_seconds)


def _firm(candidates: Candidates) -> BoolArray:
    """Which candidates are never reclaimed, (A,)."""
    is_firm = [offer.purchase is not Purchase.SPOT for offer in candidates.offers]
    firm: BoolArray = np.array(is_firm, dtype=np.bool_)[candidates.sizes.offer]
    return firm


def _recovery_seconds(at: Ground, firm: BoolArray) -> float:
    """From a reclaim until the job trains on what is not reclaimed."""
    candidates = at.candidates
    offers = np.unique(candidates.sizes.offer[firm & candidates.allowed]).tolist()
    starts = min(start_seconds(at.switching, candidates.offers[offer]) for offer in offers)
    return starts + at.switching.restore_seconds


def margin_seconds(left_seconds: float, replan_seconds: float) -> float:
    """What is kept back of the time that is left to a deadline."""
    return min(replan_seconds, _MARGIN_SHARE * left_seconds)


def _with_margin(at: Ground, work: float, ends: Ends, replan_seconds: float) -> Stages | Shortfall:
    if ends.seconds is not None:
        early = replace(ends, seconds=ends.seconds - margin_seconds(ends.seconds, replan_seconds))
        found = plan_stages(at, work, early, replan_seconds)
        if isinstance(found, Stages) and found.chance >= ends.confidence:
            return found
    return plan_stages(at, work, ends, replan_seconds)


def _without_deadline(
    job: JobSnapshot, at: Ground, supply: Supply, prices: PriceRange, why: str
) -> Aim:
    """What becomes of a job that is late: it stops, keeps its budget, or goes on as stated."""
    after = job.objective.after_deadline
    if after is AfterDeadline.STOP:
        return Aim(0.0, stop=f"{why}, and it was to stop then")
    budget = replace(ends_of(job, supply), seconds=None)
    if budget.usd is not None and _can_be_judged(job, at):
        kept = _staged(job, at, supply, prices, budget)
        return replace(kept, note=f"{why}; {kept.note}")
    return Aim(value_of_time_when_late(job.objective, prices), note=f"{why}, now {after.value}")


def _least_bid(ends: Ends, prices: PriceRange) -> float:
    return 0.0 if ends.seconds is None else prices.most


def _implied_value(
    candidates: Candidates, stages: Stages, ends: Ends, prices: PriceRange
) -> float:
    """The value of time at which the job would choose so without a deadline or budget.

    That between the two allocations of a sequence. Of a single one with a deadline it is the
    lowest such value, with nothing but a budget the highest.
    """
    rate = candidates.rate
    corners = hull(candidates.usd_per_second, rate, candidates.allowed)
    slow, fast = stages.first, stages.then
    if slow == fast and ends.seconds is not None:
        slow = max((i for i in corners if rate[i] < rate[fast]), key=rate.item, default=-1)
        if slow < 0:
            return 0.0
    elif slow == fast:
        fast = min((i for i in corners if rate[i] > rate[slow]), key=rate.item, default=-1)
        if fast < 0:
            return prices.most
    points = [(float(candidates.usd_per_second[i]), float(rate[i])) for i in (slow, fast)]
    return min(value_of_time_between(*sorted(points)), prices.most)


def _can_be_judged(job: JobSnapshot, at: Ground) -> bool:
    was_measured = any(model.measured for model in job.models.values())
    return knows_the_end(job) and was_measured and bool(at.candidates.allowed.any())


def _kept(job: JobSnapshot, ends: Ends, stages: Stages) -> str:
    chance = f"in {percent(stages.chance)} of draws"
    if stages.chance < job.objective.confidence:
        chance = f"only {chance}, {percent(job.objective.confidence)} asked"
    return f"{_ends_in_words(job, ends)} kept {chance}"


def _out_of_reach(job: JobSnapshot, ends: Ends, found: Shortfall) -> str:
    surely = f"at {percent(ends.confidence)}"
    late_seconds = found.seconds - (ends.seconds or 0.0)
    if found.misses_seconds:
        return f"deadline out of reach: {duration(late_seconds)} late at best {surely}"
    if found.misses_usd:
        return f"{_short_of_budget(job, found)}, so the deadline is given up"
    return f"deadline out of reach within the budget: each can be kept {surely}, but not both"


def _short_of_budget(job: JobSnapshot, found: Shortfall) -> str:
    budget, confidence = job.objective.budget_usd, job.objective.confidence
    needed = money(job.spent_usd + found.usd)
    return (
        f"budget {money(float(budget or 0))} out of reach: {needed} needed at "
        f"{percent(confidence)}, so as far as it goes for the least $ per progress"
    )


def _budget_spent(job: JobSnapshot) -> str:
    budget = float(job.objective.budget_usd or 0)
    return (
        f"budget {money(budget)}: {money(job.spent_usd)} spent, "
        "the rest is kept for its last checkpoint"
    )


def _ends_in_words(job: JobSnapshot, ends: Ends) -> str:
    words = []
    if ends.seconds is not None:
        words.append(f"deadline in {duration(ends.seconds)}")
    if ends.usd is not None:
        words.append(f"budget {money(float(job.objective.budget_usd or 0))}")
    return " and ".join(words)
