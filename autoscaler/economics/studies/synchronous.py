"""The plan of a synchronous rung: water-filling, said in decisions with their reasons."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.forecast import range_of
from autoscaler.economics.stages import quantile
from autoscaler.economics.studies.constraints import StudyConstraints
from autoscaler.economics.studies.looks import looks
from autoscaler.economics.studies.packing import Beginning, Place
from autoscaler.economics.studies.rung import Rung, StudySupply
from autoscaler.economics.studies.study_plan import (
    Standby,
    StudyPlan,
    TrialAction,
    TrialDecision,
    WaitCause,
)
from autoscaler.economics.studies.water_filling import Filling, Prospects, water_fill
from autoscaler.economics.wording import duration, money, per_hour, percent

# What was ordered for a barrier a boot away is not let go when that turns out a little later.
_RELUCTANCE = 1.25
_LEAST_SECONDS = 1.0
_ACTIONS = {
    Beginning.HOLDS: TrialAction.HOLD,
    Beginning.RESIZES: TrialAction.RESIZE,
    Beginning.FREED: TrialAction.TAKE_OVER,
    Beginning.NEW: TrialAction.START,
    Beginning.AFTER: TrialAction.WAIT,
}


def plan_rung(
    rung: Rung, supply: StudySupply, constraints: StudyConstraints, reserve: float = 0.0
) -> StudyPlan:
    """Return what each trial of the present rung holds, and what is kept for the next rung.

    A trial that is done is no trial of the rung: its instances come in as `freed`. What no trial
    takes over, and standby does not keep, is released.

    Args:
        rung: the present rung, and the later ones.
        supply: sizes that trials may hold, and the limits.
        constraints: deadline, budget and value of time of the study.
        reserve: share of the time left to the deadline that is not planned for: what is not known
            is more than the draws know of.

    Raises:
        ValueError: the rung has no trial, or the limits leave no room for one.
    """
    aim = constraints
    if aim.deadline_seconds is not None:
        seconds = max((1.0 - reserve) * aim.deadline_seconds, _LEAST_SECONDS)
        aim = replace(aim, deadline_seconds=seconds)
    prospects = water_fill(rung, supply, aim)
    chosen = prospects.chosen
    decisions = tuple(_decision(index, rung, supply, chosen) for index in range(len(rung.trials)))
    standby = _standby(rung, supply, chosen)
    looked = looks(decisions, rung, supply, chosen)
    if looked is not None:
        standby = _kept_meanwhile(rung, looked, standby)
    return StudyPlan(
        decisions=looked or decisions,
        standby=standby if standby.keep else None,
        usd_per_second=chosen.usd_per_second,
        barrier_seconds=range_of(chosen.packing.seconds),
        seconds=range_of(chosen.seconds),
        usd=range_of(chosen.usd),
        chance=prospects.chance,
        shortfall=_shortfall(prospects, constraints),
    )


def _decision(index: int, rung: Rung, supply: StudySupply, chosen: Filling) -> TrialDecision:
    trial, place = rung.trials[index], chosen.packing.places[index]
    after = None if place.after is None else rung.trials[place.after].id
    ends = chosen.packing.ends[:, index]
    what = _what(trial.id, trial.held, place, supply, after)
    action = _action(trial.held, place)
    return TrialDecision(
        trial.id,
        action,
        supply.sizes[place.size],
        f"{what}: {_why(index, rung, supply, chosen)}",
        after,
        range_of(ends),
        WaitCause.OTHER_TRIAL if action in (TrialAction.WAIT, TrialAction.PAUSE) else None,
    )


def _action(held: int | None, place: Place) -> TrialAction:
    """What a place means to a trial: one that may stay where it is does not take over."""
    if held is None:
        return _ACTIONS[place.beginning]
    if place.beginning is Beginning.AFTER:
        return TrialAction.PAUSE
    return TrialAction.HOLD if place.size == held else TrialAction.RESIZE


def _what(
    trial: str, held: int | None, place: Place, supply: StudySupply, after: str | None
) -> str:
    size = supply.sizes[place.size]
    match _action(held, place):
        case TrialAction.HOLD:
            return f"hold {trial} at {size}"
        case TrialAction.RESIZE:
            return f"{_change(supply.sizes[held or 0], size).format(trial)}"
        case TrialAction.START:
            return f"start {trial} on {size}"
        case TrialAction.TAKE_OVER:
            return f"start {trial} on {size} that another trial left"
        case TrialAction.WAIT:
            return f"wait {trial} for the {size} of {after}"
        case TrialAction.PAUSE:
            return f"wait {trial}, paused until {after} leaves its {size}"


def _change(old: Allocation, new: Allocation) -> str:
    if new.offer != old.offer:
        return f"move {{}} {old} -> {new}"
    verb = "grow" if new.devices > old.devices else "shrink"
    return f"{verb} {{}} {old.instances} -> {new}"


def _why(index: int, rung: Rung, supply: StudySupply, chosen: Filling) -> str:
    """Against the cheapest size: what it would do to the barrier, and what that is worth."""
    barrier = quantile(chosen.packing.seconds, 0.5)
    end = quantile(chosen.packing.ends[:, index], 0.5)
    text = f"there in {duration(end)}, the barrier in {duration(barrier)}"
    place = chosen.packing.places[index]
    trial, price = rung.trials[index], supply.usd_per_second
    rate = supply.with_reclaims(trial.goodput)
    progress = np.where(rate > 0, price / np.maximum(rate, 1e-300), np.inf).mean(axis=0)
    cheapest = int(progress.argmin())
    if cheapest == place.size or place.beginning is Beginning.AFTER:
        return text
    alone = float(np.median(trial.to_decision / rate[:, cheapest]))
    extra = float(trial.to_decision * (progress[place.size] - progress[cheapest]))
    late = alone - barrier
    if late <= 0:
        return f"{text}; changing to {supply.sizes[cheapest]} would not pay"
    worth = per_hour(chosen.usd_per_second)
    return (
        f"{text}; {supply.sizes[cheapest]} would hold it up by {duration(late)} (study time is "
        f"worth {worth}), this costs {money(extra)} more"
    )


def _standby(rung: Rung, supply: StudySupply, chosen: Filling) -> Standby:
    """Return the free instances to keep for the next rung.

    Those that it needs are kept if the barrier is nearer than a boot, and those that are paid for
    until that ends. Counted is the offer that most instances are of. (Ordering more of them a boot
    ahead was tried: it cost as much as it saved, docs/studies-economics.md.)
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
    return Standby(offer.id, max(wanted, paid), reason)


def _kept_meanwhile(rung: Rung, looked: tuple[TrialDecision, ...], standby: Standby) -> Standby:
    """What is free stays as it is until all have been looked at."""
    pauses = sum(one.action is TrialAction.PAUSE for one in looked)
    taken = sum(one.action is TrialAction.TAKE_OVER for one in looked) - pauses
    free = sum(one.instances for one in rung.freed if one.offer == standby.offer)
    reason = "kept until all trials have been looked at"
    return Standby(standby.offer, max(free - taken, 0), reason)


def _lanes(rung: Rung, supply: StudySupply, chosen: Filling) -> list[tuple[str, int, float]]:
    """Offer, instances and how long they are kept of what trials hold, each counted once."""
    places = chosen.packing.places
    passed_on = {place.after for place in places}
    return [
        (
            supply.sizes[place.size].offer,
            supply.sizes[place.size].instances,
            max(quantile(chosen.packing.ends[:, index], 0.5), _held_paid(rung, index, place)),
        )
        for index, place in enumerate(places)
        if index not in passed_on
    ]


def _held_paid(rung: Rung, index: int, place: Place) -> float:
    trial = rung.trials[index]
    return trial.paid_seconds if trial.held == place.size else 0.0


def _paid_for(rung: Rung, offer: str, seconds: float = 0.0) -> int:
    """Free instances of an offer that are paid for longer than that."""
    paid = (one for one in rung.freed if one.offer == offer and one.paid_seconds > seconds)
    return sum(one.instances for one in paid)


def _shortfall(prospects: Prospects, aim: StudyConstraints) -> str | None:
    """What breaks, by how much, and what would be in reach."""
    if prospects.possible >= aim.confidence:
        return None
    share = percent(prospects.possible)
    parts = []
    if aim.deadline_seconds is not None:
        earliest = duration(quantile(prospects.earliest, aim.confidence))
        parts.append(f"a deadline in {duration(aim.deadline_seconds)}: in reach is {earliest}")
    if aim.budget_usd is not None:
        least = money(quantile(prospects.least_usd, aim.confidence))
        parts.append(f"a budget of {money(aim.budget_usd)}: needed is {least}")
    asked = percent(aim.confidence)
    return f"kept in {share} of draws, not in {asked}: " + "; ".join(parts)
