"""Short runs of trials whose speed is not known yet, before trials are put in an order.

A trial that waits may be the slow one that all will wait for, found too late to do anything about
it. A few seconds of its training tell its speed, and are not lost. So where a study's time has a
value, each of its trials is probed first if that is cheap: a hand-over to each trial and one back.
"""

from __future__ import annotations

from dataclasses import replace

from autoscaler.economics.choice.stages import quantile
from autoscaler.economics.pricing.wording import duration, money
from autoscaler.economics.studies.rungs.rung import Rung
from autoscaler.economics.studies.rungs.water_filling import Filling
from autoscaler.economics.studies.study_plan import TrialAction, TrialDecision
from autoscaler.economics.studies.supply import StudySupply
from autoscaler.economics.studies.trial_state import TrialState

# Probes cost at most this share of what is still to be paid.
_CHEAP = 0.05


def speed_probes(
    decisions: tuple[TrialDecision, ...], rung: Rung, supply: StudySupply, chosen: Filling
) -> tuple[TrialDecision, ...] | None:
    """Return the decisions with the next probes; None if no trial needs one or they do not pay.

    Free instances, and trials that train and were measured, make room. All other decisions are
    deferred. Trials believed to take longest are probed first.
    """
    unknown = [
        index
        for index, trial in enumerate(rung.trials)
        if not trial.is_measured and trial.held is None
    ]
    hosts = [
        index
        for index, trial in enumerate(rung.trials)
        if trial.held is not None and trial.is_measured and trial.ready_seconds == 0
    ]
    rooms = _rooms(rung, supply, hosts if rung.may_pause else [])
    why = _why(len(unknown), supply, chosen) if unknown and rooms else None
    if why is None:
        return None
    unknown.sort(key=lambda index: -_seconds(rung.trials[index], supply))
    changed = [
        _deferred(trial, decision, supply)
        for trial, decision in zip(rung.trials, decisions, strict=True)
    ]
    for index, (host, size) in zip(unknown, rooms, strict=False):
        trial = rung.trials[index].id
        changed[index] = replace(
            decisions[index],
            action=TrialAction.TAKE_OVER,
            size=supply.sizes[size],
            reason=f"start {trial} on {supply.sizes[size]}: {why}",
        )
        if host is not None:
            changed[host] = replace(
                changed[host],
                action=TrialAction.PAUSE,
                reason=f"wait {rung.trials[host].id}, paused for a look at {trial}",
            )
    return tuple(changed)


def _rooms(rung: Rung, supply: StudySupply, hosts: list[int]) -> list[tuple[int | None, int]]:
    """Return the room for probes as (trial that pauses, size), free instances as (None, size)."""
    rooms: list[tuple[int | None, int]] = []
    for freed in rung.freed:
        sizes = [
            index
            for index, size in enumerate(supply.sizes)
            if size.offer == freed.offer and size.instances == 1
        ]
        if sizes and freed.ready_seconds == 0:
            size = max(sizes, key=lambda index: supply.sizes[index].devices)
            rooms += [(None, size)] * freed.instances
    return rooms + [(host, rung.trials[host].held or 0) for host in hosts]


def _deferred(trial: TrialState, decision: TrialDecision, supply: StudySupply) -> TrialDecision:
    """Return the decision that a trial keeps what it holds until the probes are over."""
    if trial.held is None:
        reason = f"wait {trial.id} until all have been looked at"
        return replace(decision, action=TrialAction.WAIT, reason=reason)
    size = supply.sizes[trial.held]
    reason = f"hold {trial.id} at {size} until all have been looked at"
    return replace(decision, action=TrialAction.HOLD, size=size, reason=reason)


def _why(unknown: int, supply: StudySupply, chosen: Filling) -> str | None:
    """Return why probes of so many trials pay; None if time has no value or they cost much."""
    switching = supply.switching
    costs = 2.0 * switching.handover_seconds * unknown * float(supply.usd_per_second.min())
    if chosen.usd_per_second <= 0 or costs > _CHEAP * float(chosen.usd.mean()):
        return None
    look = duration(switching.look_seconds)
    return f"a probe of {look} measures its speed, {money(costs)} for all {unknown}"


def _seconds(trial: TrialState, supply: StudySupply) -> float:
    """Return the median seconds of a trial's work on its fastest size."""
    rate = supply.with_reclaims(trial.goodput)
    return quantile(trial.to_decision / rate.max(axis=1), 0.5)
