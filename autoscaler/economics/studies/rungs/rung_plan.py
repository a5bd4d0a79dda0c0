"""Plan of a synchronous rung: the chosen packing as decisions with their reasons."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from autoscaler.economics.choice.stages import quantile
from autoscaler.economics.forecasts.forecast import range_of
from autoscaler.economics.pricing.wording import duration, money, per_hour, percent
from autoscaler.economics.studies.constraints import StudyConstraints
from autoscaler.economics.studies.rungs.packing import InstanceSource, TrialPlacement
from autoscaler.economics.studies.rungs.rung import Rung
from autoscaler.economics.studies.rungs.speed_probes import speed_probes
from autoscaler.economics.studies.rungs.water_filling import Filling, Prospects, water_fill
from autoscaler.economics.studies.study_plan import (
    StandbyTarget,
    StudyPlan,
    TrialAction,
    TrialDecision,
    WaitCause,
)
from autoscaler.economics.studies.supply import StudySupply

# Free instances are kept for the next rung up to this many boots before it begins.
_RELUCTANCE = 1.25
_LEAST_SECONDS = 1.0
_ACTIONS = {
    InstanceSource.HOLDS: TrialAction.HOLD,
    InstanceSource.RESIZES: TrialAction.RESIZE,
    InstanceSource.FREED: TrialAction.TAKE_OVER,
    InstanceSource.NEW: TrialAction.START,
    InstanceSource.AFTER: TrialAction.WAIT,
}


def plan_rung(
    rung: Rung, supply: StudySupply, constraints: StudyConstraints, reserve: float = 0.0
) -> StudyPlan:
    """Return the plan of the present rung.

    Trials that are done are no trials of the rung; their instances come in as `freed`. Free
    instances that no trial takes over and `standby` does not keep are to be released.

    Args:
        rung: the present rung, and the later ones.
        supply: sizes that trials may hold, and the limits.
        constraints: deadline, budget and value of time of the study.
        reserve: share of the time to the deadline that is not planned for, because the draws do
            not hold all that is unknown.

    Raises:
        ValueError: the rung has no trial, or the limits leave no room for one.
    """
    planned = constraints
    if constraints.deadline_seconds is not None:
        seconds = max((1.0 - reserve) * constraints.deadline_seconds, _LEAST_SECONDS)
        planned = replace(constraints, deadline_seconds=seconds)
    prospects = water_fill(rung, supply, planned)
    chosen = prospects.chosen
    decisions = tuple(_decision(index, rung, supply, chosen) for index in range(len(rung.trials)))
    standby = _standby(rung, supply, chosen)
    probes = speed_probes(decisions, rung, supply, chosen)
    if probes is not None:
        standby = _kept_during_probes(rung, probes, standby)
    return StudyPlan(
        decisions=probes or decisions,
        standby=standby if standby.keep else None,
        usd_per_second=chosen.usd_per_second,
        barrier_seconds=range_of(chosen.packing.seconds),
        seconds=range_of(chosen.seconds),
        usd=range_of(chosen.usd),
        chance=prospects.chance,
        shortfall=_shortfall(prospects, constraints),
    )


def _decision(index: int, rung: Rung, supply: StudySupply, chosen: Filling) -> TrialDecision:
    trial, assignment = rung.trials[index], chosen.packing.assignments[index]
    action = _ACTIONS[assignment.source]
    after = None if assignment.after is None else rung.trials[assignment.after].id
    change = _change(trial.id, trial.held, assignment, supply, after)
    return TrialDecision(
        trial.id,
        action,
        supply.sizes[assignment.size],
        f"{change}: {_why(index, rung, supply, chosen)}",
        range_of(chosen.packing.ends[:, index]),
        WaitCause.OTHER_TRIAL if action is TrialAction.WAIT else None,
    )


def _change(
    trial: str,
    held: int | None,
    assignment: TrialPlacement,
    supply: StudySupply,
    after: str | None,
) -> str:
    """Return the change of a trial in words."""
    size = supply.sizes[assignment.size]
    match assignment.source:
        case InstanceSource.HOLDS:
            return f"hold {trial} at {size}"
        case InstanceSource.NEW:
            return f"start {trial} on {size}"
        case InstanceSource.FREED:
            return f"start {trial} on {size} that another trial left"
        case InstanceSource.AFTER:
            return f"wait {trial} for the {size} of {after}"
        case InstanceSource.RESIZES:
            present = supply.sizes[held or 0]
            if size.offer != present.offer:
                return f"move {trial} {present} -> {size}"
            verb = "grow" if size.devices > present.devices else "shrink"
            return f"{verb} {trial} {present.instances} -> {size}"


def _why(index: int, rung: Rung, supply: StudySupply, chosen: Filling) -> str:
    """Return why a trial gets its size, compared with its cheapest size."""
    barrier = quantile(chosen.packing.seconds, 0.5)
    end = quantile(chosen.packing.ends[:, index], 0.5)
    text = f"there in {duration(end)}, the barrier in {duration(barrier)}"
    assignment = chosen.packing.assignments[index]
    trial, price = rung.trials[index], supply.usd_per_second
    rate = supply.with_reclaims(trial.goodput)
    unit_usd = np.where(rate > 0, price / np.maximum(rate, 1e-300), np.inf).mean(axis=0)
    cheapest = int(unit_usd.argmin())
    if cheapest == assignment.size or assignment.source is InstanceSource.AFTER:
        return text
    late = float(np.median(trial.to_decision / rate[:, cheapest])) - barrier
    if late <= 0:
        return f"{text}; changing to {supply.sizes[cheapest]} would not pay"
    extra = float(trial.to_decision * (unit_usd[assignment.size] - unit_usd[cheapest]))
    worth = per_hour(chosen.usd_per_second)
    return (
        f"{text}; {supply.sizes[cheapest]} would hold it up by {duration(late)} (study time is "
        f"worth {worth}), this costs {money(extra)} more"
    )


def _standby(rung: Rung, supply: StudySupply, chosen: Filling) -> StandbyTarget:
    """Return the free instances to keep for the next rung.

    Instances that the next rung needs are kept if the barrier is nearer than a boot. Instances
    that are paid for are kept until that ends. Only the offer with most instances counts. (Orders
    a boot ahead of the barrier cost as much as they saved: docs/studies-economics.md.)
    """
    barrier = quantile(chosen.packing.seconds, 0.5)
    lanes = _lanes(rung, supply, chosen)
    used: Counter[str] = Counter()
    for name, count, _ in lanes:
        used[name] += count
    offer = max(supply.offers, key=lambda offer: used[offer.id])
    boots = offer.boot_seconds + offer.fill_seconds
    staying = sum(n for name, n, end in lanes if name == offer.id and end >= barrier - boots)
    free = chosen.packing.unused.get(offer.id, 0)
    kept = chosen.kept if chosen.kept.any() else np.ones_like(chosen.kept)
    needed = round(quantile(chosen.next_instances[kept], 0.5)) if rung.future else 0
    wanted = min(free, max(needed - staying, 0))
    if barrier > boots * _RELUCTANCE:
        wanted = min(wanted, _paid_for(rung, offer.id, barrier))
    reason = (
        f"the next rung begins in {duration(barrier)} with {needed} x {offer.id}, of which "
        f"{staying} will be there; a boot takes {duration(boots)}"
    )
    paid = min(_paid_for(rung, offer.id), free)
    if paid > wanted:
        reason = f"{reason}; {paid} of them are paid for and kept until that ends"
    return StandbyTarget(offer.id, max(wanted, paid), reason)


def _kept_during_probes(
    rung: Rung, probes: tuple[TrialDecision, ...], standby: StandbyTarget
) -> StandbyTarget:
    """Return the standby that keeps all free instances that no probe takes."""
    pauses = sum(decision.action is TrialAction.PAUSE for decision in probes)
    taken = sum(decision.action is TrialAction.TAKE_OVER for decision in probes) - pauses
    free = sum(freed.instances for freed in rung.freed if freed.offer == standby.offer)
    reason = "kept until the speed of every trial is known"
    return StandbyTarget(standby.offer, max(free - taken, 0), reason)


def _lanes(rung: Rung, supply: StudySupply, chosen: Filling) -> list[tuple[str, int, float]]:
    """Return (offer, instances, seconds until they are free) of all that trials hold."""
    assignments = chosen.packing.assignments
    passed_on = {assignment.after for assignment in assignments}
    lanes = []
    for index, assignment in enumerate(assignments):
        if index in passed_on:
            continue
        trial, size = rung.trials[index], supply.sizes[assignment.size]
        end = quantile(chosen.packing.ends[:, index], 0.5)
        paid = trial.paid_seconds if trial.held == assignment.size else 0.0
        lanes.append((size.offer, size.instances, max(end, paid)))
    return lanes


def _paid_for(rung: Rung, offer: str, seconds: float = 0.0) -> int:
    """Return the number of free instances of an offer that are paid for longer than that."""
    return sum(
        freed.instances
        for freed in rung.freed
        if freed.offer == offer and freed.paid_seconds > seconds
    )


def _shortfall(prospects: Prospects, constraints: StudyConstraints) -> str | None:
    """Return what can't be kept, and what would be in reach; None if all can be kept."""
    if prospects.possible >= constraints.confidence:
        return None
    parts = []
    if constraints.deadline_seconds is not None:
        earliest = duration(quantile(prospects.earliest, constraints.confidence))
        asked = duration(constraints.deadline_seconds)
        parts.append(f"a deadline in {asked}: in reach is {earliest}")
    if constraints.budget_usd is not None:
        least = money(quantile(prospects.least_usd, constraints.confidence))
        parts.append(f"a budget of {money(constraints.budget_usd)}: needed is {least}")
    share, confidence = percent(prospects.possible), percent(constraints.confidence)
    return f"kept in {share} of cases, not in {confidence}: " + "; ".join(parts)
