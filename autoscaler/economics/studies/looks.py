"""Looks at trials whose speed nobody knows yet, before they are put in an order.

A trial that waits may turn out to be the slow one that all will wait for, found too late to do
anything about it. A few seconds of its training tell, and are not lost. So a study
whose time has a value looks at each of its trials first, where that is cheap: a hand-over to each
and one back.
"""

from __future__ import annotations

from dataclasses import replace

from autoscaler.economics.stages import quantile
from autoscaler.economics.studies.rung import Rung, StudySupply, TrialState
from autoscaler.economics.studies.study_plan import TrialAction, TrialDecision
from autoscaler.economics.studies.water_filling import Filling
from autoscaler.economics.wording import duration, money

# Looks cost at most this share of what is still to be paid.
_CHEAP = 0.05


def looks(
    decisions: tuple[TrialDecision, ...], rung: Rung, supply: StudySupply, chosen: Filling
) -> tuple[TrialDecision, ...] | None:
    """Return the decisions while looks are worth it; None if they are not, or all have been.

    Trials that train and were measured make room, and nothing else is changed. What is believed to
    take longest is looked at first.
    """
    pairs = list(zip(rung.trials, decisions, strict=True))
    unknown = [
        place
        for place, (trial, _) in enumerate(pairs)
        if not trial.is_measured and trial.held is None
    ]
    hosts = [
        place
        for place, (trial, _) in enumerate(pairs)
        if trial.held is not None and trial.is_measured and trial.ready_seconds == 0
    ]
    if not rung.may_pause:
        hosts = []
    room = len(hosts) + sum(one.instances for one in rung.freed)
    if not unknown or not room:
        return None
    why = _why(len(unknown), supply, chosen)
    if why is None:
        return None
    unknown.sort(key=lambda place: -_seconds(rung, supply, place))
    size_of = _rooms(rung, supply, hosts)
    changed = [_as_it_is(trial, one, supply) for trial, one in pairs]
    for place, (host, size) in zip(unknown, size_of, strict=False):
        trial = rung.trials[place].id
        changed[place] = replace(
            decisions[place],
            action=TrialAction.TAKE_OVER,
            size=supply.sizes[size],
            after=None,
            reason=f"start {trial} on {supply.sizes[size]}: {why}",
        )
        if host is not None:
            changed[host] = replace(
                changed[host],
                action=TrialAction.PAUSE,
                after=trial,
                reason=f"wait {rung.trials[host].id}, paused for a look at {trial}",
            )
    return tuple(changed)


def _rooms(rung: Rung, supply: StudySupply, hosts: list[int]) -> list[tuple[int | None, int]]:
    """Return where looks can be taken: (the trial that makes room, a size), free ones first."""
    rooms: list[tuple[int | None, int]] = []
    for freed in rung.freed:
        sizes = [
            index
            for index, size in enumerate(supply.sizes)
            if size.offer == freed.offer and size.instances == 1
        ]
        if sizes and freed.ready_seconds == 0:
            rooms += [(None, max(sizes, key=lambda one: supply.sizes[one].devices))] * (
                freed.instances
            )
    return rooms + [(host, rung.trials[host].held or 0) for host in hosts]


def _as_it_is(trial: TrialState, decision: TrialDecision, supply: StudySupply) -> TrialDecision:
    """Return the decision of a trial that keeps what it holds while there are looks."""
    if trial.held is None:
        reason = f"wait {trial.id} until all have been looked at"
        return replace(decision, action=TrialAction.WAIT, after=None, reason=reason)
    size = supply.sizes[trial.held]
    reason = f"hold {trial.id} at {size} until all have been looked at"
    return replace(decision, action=TrialAction.HOLD, size=size, after=None, reason=reason)


def _why(unknown: int, supply: StudySupply, chosen: Filling) -> str | None:
    """Return why looks are worth what they cost; None if time has no value or they are dear."""
    switching = supply.switching
    costs = 2.0 * switching.handover_seconds * unknown * float(supply.usd_per_second.min())
    if chosen.usd_per_second <= 0 or costs > _CHEAP * float(chosen.usd.mean()):
        return None
    look = duration(switching.look_seconds)
    return f"a look of {look} tells how slow it is, {money(costs)} for all {unknown}"


def _seconds(rung: Rung, supply: StudySupply, place: int) -> float:
    """Return the seconds of a trial's work where it is fastest."""
    rate = supply.with_reclaims(rung.trials[place].goodput)
    return quantile(rung.trials[place].to_decision / rate.max(axis=1), 0.5)
