"""Requirements of a job's objective now: value of time, stages, or the stop of the job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.objective import AfterDeadline
from autoscaler.domain.offer import Purchase
from autoscaler.domain.plan import CHANCE_FIGURE, LATE_FIGURE, NEEDED_FIGURE
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.allocation.candidates import Candidates, candidates
from autoscaler.economics.allocation.remaining import knows_the_end
from autoscaler.economics.choice.stages import (
    CHECKPOINT_SECONDS,
    RemainingConstraints,
    Shortfall,
    Stages,
    plan_stages,
)
from autoscaler.economics.choice.switching import SwitchContext
from autoscaler.economics.pricing.objectives import (
    PriceRange,
    value_of_time_of,
    value_of_time_when_late,
)
from autoscaler.economics.pricing.price import hull, value_of_time_between
from autoscaler.economics.pricing.starts import billed_starts_seconds, start_seconds
from autoscaler.economics.pricing.wording import duration, money, percent
from autoscaler.economics.supply.supply import BoolArray, Supply

# Share of the time to a deadline kept back as a margin, at most the time to the next plan. It
# covers delays that no draw contains, above all the controller's planning interval.
_MARGIN_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class EndsOutlook:
    """Prospect of keeping a deadline and a budget with the best plan; None: not at stake.

    Attributes:
        chance: share of draws in which both are kept.
        late_seconds: time after the deadline at which the job ends, at the asked confidence.
        needed_usd: cost of the whole job at the asked confidence, which exceeds the budget.
    """

    chance: float | None = None
    late_seconds: float | None = None
    needed_usd: float | None = None

    def figures(self) -> Mapping[str, float]:
        """Return the known and finite figures by name, for the journal."""
        figures = {
            CHANCE_FIGURE: self.chance,
            LATE_FIGURE: self.late_seconds,
            NEEDED_FIGURE: self.needed_usd,
        }
        return {
            name: value
            for name, value in figures.items()
            if value is not None and math.isfinite(value)
        }


@dataclass(frozen=True, slots=True)
class Requirement:
    """Requirements of a job's objective now.

    Attributes:
        value_of_time: price of a second of waiting, $ per second.
        stages: allocations in sequence, if a deadline or budget decides; else None.
        note: message for the job's owner; None: nothing to report.
        stop: reason why the job must end now; None: it goes on.
        least_bid: lowest bid for limits while a deadline needs them, $ per second.
        outlook: prospect of keeping deadline and budget.
    """

    value_of_time: float
    stages: Stages | None = None
    note: str | None = None
    stop: str | None = None
    least_bid: float = 0.0
    outlook: EndsOutlook = EndsOutlook()

    @property
    def is_bound(self) -> bool:
        """Whether a deadline or an own budget decides, so that no price of a dollar changes it.

        The plan for a deadline costs the least money that keeps it, however much a dollar counts.
        A deadline that is missed or out of reach does not bind any more.
        """
        return self.stages is not None or self.least_bid > 0.0


def requirement(
    job: JobSnapshot, at: SwitchContext, supply: Supply, prices: PriceRange
) -> Requirement:
    """Return what the job's objective requires now.

    Deadlines and budgets are planned for once the remaining work is known and a size was measured.
    Until then the preference decides, within the money left. A deadline that may still be kept
    gets the cheapest allocation that keeps it. For that allocation the job bids its highest value
    of time, because time lost by waiting can't be bought back.
    """
    usual = Requirement(value_of_time_of(job, prices))
    ends = remaining_constraints(job, supply)
    if not at.candidates.allowed.any() and _is_budget_spent(job, supply):
        return replace(usual, stop=_budget_spent(job))
    if ends.seconds is None and ends.usd is None:
        return usual
    if ends.seconds is not None and ends.seconds <= 0:
        late = f"deadline missed by {duration(-ends.seconds)}"
        missed = EndsOutlook(late_seconds=-ends.seconds)
        return _without_deadline(job, at, supply, prices, late, missed)
    if not _can_be_judged(job, at):
        return replace(
            usual,
            note="deadline and budget can't be judged before it is measured",
            least_bid=_least_bid(ends, prices),
        )
    return _staged(job, at, supply, prices, ends)


def affordable(job: JobSnapshot, supply: Supply, candidates: Candidates) -> BoolArray:
    """Return which candidates the budget pays until the next plan and a last checkpoint, (A,).

    Time in a cloud's queue is not billed.
    """
    ends = remaining_constraints(job, supply)
    if ends.usd is None:
        return np.ones(len(candidates), dtype=np.bool_)
    held_seconds = supply.replan_seconds + CHECKPOINT_SECONDS
    start_seconds_of_offer = billed_starts_seconds(job.switching, supply.offers)
    minimum_of_offer = np.array([float(offer.minimum_billed_seconds) for offer in supply.offers])
    offer = candidates.sizes.offer
    seconds = np.maximum(start_seconds_of_offer[offer] + held_seconds, minimum_of_offer[offer])
    if candidates.held is not None:
        is_kept = (offer == offer[candidates.held]) & (
            candidates.sizes.instances <= candidates.sizes.instances[candidates.held]
        )
        seconds = np.where(is_kept, held_seconds, seconds)
    return np.asarray(seconds * candidates.usd_per_second <= ends.usd)


def _is_budget_spent(job: JobSnapshot, supply: Supply) -> bool:
    """Return whether the budget pays for no size until the next plan and a last checkpoint.

    A refused offer may be had later, so it counts. A job that no offer can hold waits while
    anything is left.
    """
    usd = remaining_constraints(job, supply).usd
    if usd is None or usd <= 0:
        return usd is not None
    every_offer = replace(supply, terms=supply.terms.with_capacity)
    sizes = candidates(job, every_offer)
    is_paid = affordable(job, every_offer, sizes)[sizes.allowed]
    return len(is_paid) > 0 and not bool(is_paid.any())


def remaining_constraints(job: JobSnapshot, supply: Supply) -> RemainingConstraints:
    """Return the job's deadline and budget relative to now and to its spending."""
    objective = job.objective
    seconds = usd = None
    if objective.deadline_seconds is not None:
        seconds = objective.deadline_seconds - supply.as_of_seconds(job)
    if objective.budget_usd is not None:
        usd = float(objective.budget_usd) - job.spent_usd
    return RemainingConstraints(seconds, usd, objective.confidence)


def _staged(
    job: JobSnapshot,
    at: SwitchContext,
    supply: Supply,
    prices: PriceRange,
    ends: RemainingConstraints,
) -> Requirement:
    stages = stages_that_keep(ends, at, job.remaining_examples or 0.0, supply.replan_seconds)
    if isinstance(stages, Stages):
        return Requirement(
            value_of_time=_implied_value(at.candidates, stages, ends, prices),
            stages=stages,
            note=_describe_kept(job, ends, stages),
            least_bid=_least_bid(ends, prices),
            outlook=EndsOutlook(chance=stages.chance),
        )
    short = (
        EndsOutlook(needed_usd=job.spent_usd + stages.usd) if stages.misses_usd else EndsOutlook()
    )
    if ends.seconds is None:
        return Requirement(0.0, note=_short_of_budget(job, stages), outlook=short)
    missed = replace(short, late_seconds=max(stages.seconds - ends.seconds, 0.0))
    reason = _describe_missed(job, ends, stages)
    return _without_deadline(job, at, supply, prices, reason, missed)


def stages_that_keep(
    ends: RemainingConstraints, at: SwitchContext, work: float, replan_seconds: float
) -> Stages | Shortfall:
    """Return stages that keep the ends, a deadline with a margin if possible.

    No draw contains reclaims. So stages use spot only if the deadline leaves time to recover from
    a reclaim on firm instances, or if nothing else keeps it. Firm instances are never reclaimed.

    Args:
        ends: deadline and budget from now, and the confidence.
        at: what the job may change to, and at what cost.
        work: useful examples left.
        replan_seconds: longest time until the next plan.
    """
    firm = _firm(at.candidates)
    is_choice = (firm & at.candidates.allowed).any() and not firm.all()
    if ends.seconds is None or not is_choice:
        return _with_margin(at, work, ends, replan_seconds)
    early = replace(ends, seconds=ends.seconds - _recovery_seconds(at, firm))
    stages = _with_margin(at, work, early, replan_seconds)
    if isinstance(stages, Stages) and stages.chance >= ends.confidence:
        return stages
    allowed = at.candidates.allowed & firm
    without_spot = replace(at, candidates=replace(at.candidates, allowed=allowed))
    stages = _with_margin(without_spot, work, ends, replan_seconds)
    return stages if isinstance(stages, Stages) else _with_margin(at, work, ends, replan_seconds)


def _firm(candidates: Candidates) -> BoolArray:
    """Return which candidates are never reclaimed, (A,)."""
    is_firm = [offer.purchase is not Purchase.SPOT for offer in candidates.offers]
    firm: BoolArray = np.array(is_firm, dtype=np.bool_)[candidates.sizes.offer]
    return firm


def _recovery_seconds(at: SwitchContext, firm: BoolArray) -> float:
    """Return the seconds from a reclaim until the job trains on firm instances."""
    candidates = at.candidates
    offers = np.unique(candidates.sizes.offer[firm & candidates.allowed]).tolist()
    starts = min(start_seconds(at.switching, candidates.offers[offer]) for offer in offers)
    return starts + at.switching.restore_seconds


def margin_seconds(left_seconds: float, replan_seconds: float) -> float:
    """Return the margin to keep back of the seconds left to a deadline."""
    return min(replan_seconds, _MARGIN_SHARE * left_seconds)


def _with_margin(
    at: SwitchContext, work: float, ends: RemainingConstraints, replan_seconds: float
) -> Stages | Shortfall:
    if ends.seconds is not None:
        early = replace(ends, seconds=ends.seconds - margin_seconds(ends.seconds, replan_seconds))
        stages = plan_stages(at, work, early, replan_seconds)
        if isinstance(stages, Stages) and stages.chance >= ends.confidence:
            return stages
    return plan_stages(at, work, ends, replan_seconds)


def _without_deadline(
    job: JobSnapshot,
    at: SwitchContext,
    supply: Supply,
    prices: PriceRange,
    reason: str,
    outlook: EndsOutlook,
) -> Requirement:
    """Return the requirement of a late job: stop, keep the budget, or as the owner stated."""
    after = job.objective.after_deadline
    if after is AfterDeadline.STOP:
        stop = f"{reason}, and after_deadline is stop"
        return Requirement(0.0, stop=stop, outlook=outlook)
    budget = replace(remaining_constraints(job, supply), seconds=None)
    if budget.usd is not None and _can_be_judged(job, at):
        within_budget = _staged(job, at, supply, prices, budget)
        needed_usd = within_budget.outlook.needed_usd
        return replace(
            within_budget,
            note=f"{reason}; {within_budget.note}",
            outlook=replace(outlook, needed_usd=needed_usd),
        )
    return Requirement(
        value_of_time_when_late(job.objective, prices) / job.dollar_weight,
        note=f"{reason}, now {after.value}",
        outlook=outlook,
    )


def _least_bid(ends: RemainingConstraints, prices: PriceRange) -> float:
    return 0.0 if ends.seconds is None else prices.most


def _implied_value(
    candidates: Candidates, stages: Stages, ends: RemainingConstraints, prices: PriceRange
) -> float:
    """Return the value of time, $ per second, that implies the stages without the ends.

    For two allocations it is the value at which both are equally good. For one allocation it is
    the lowest such value with a deadline, and the highest with only a budget.
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


def _can_be_judged(job: JobSnapshot, at: SwitchContext) -> bool:
    was_measured = any(model.measured for model in job.models.values())
    return knows_the_end(job) and was_measured and bool(at.candidates.allowed.any())


def _describe_kept(job: JobSnapshot, ends: RemainingConstraints, stages: Stages) -> str:
    chance = f"in {percent(stages.chance)} of cases"
    if stages.chance < job.objective.confidence:
        chance = f"only {chance}, {percent(job.objective.confidence)} asked"
    return f"{_describe_ends(job, ends)} kept {chance}"


def _describe_missed(job: JobSnapshot, ends: RemainingConstraints, shortfall: Shortfall) -> str:
    at_confidence = f"at {percent(ends.confidence)}"
    late_seconds = shortfall.seconds - (ends.seconds or 0.0)
    if shortfall.misses_seconds:
        return f"deadline out of reach: {duration(late_seconds)} late at best {at_confidence}"
    if shortfall.misses_usd:
        return f"{_short_of_budget(job, shortfall)}, so the deadline is given up"
    return (
        f"deadline out of reach within the budget: each can be kept {at_confidence}, but not both"
    )


def _short_of_budget(job: JobSnapshot, shortfall: Shortfall) -> str:
    budget, confidence = job.objective.budget_usd, job.objective.confidence
    needed = money(job.spent_usd + shortfall.usd)
    return (
        f"budget {money(float(budget or 0))} out of reach: {needed} needed at "
        f"{percent(confidence)}, so it is spent at the least $ per progress"
    )


def _budget_spent(job: JobSnapshot) -> str:
    budget = float(job.objective.budget_usd or 0)
    return (
        f"budget {money(budget)}: {money(job.spent_usd)} spent, "
        "the rest is reserved for its last checkpoint"
    )


def _describe_ends(job: JobSnapshot, ends: RemainingConstraints) -> str:
    parts = []
    if ends.seconds is not None:
        parts.append(f"deadline in {duration(ends.seconds)}")
    if ends.usd is not None:
        parts.append(f"budget {money(float(job.objective.budget_usd or 0))}")
    return " and ".join(parts)
