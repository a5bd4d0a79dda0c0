"""A look at trials whose speed nobody knows yet, before they are put in an order.

A trial that waits may turn out to be the slow one that all will wait for, found too late to do
anything about it. A few seconds of its training tell. So trials are looked at if the study could
not bear that all are twice or one of them 20 times as slow as believed, or if the time by which
the barrier is passed on average is worth more than all looks: a hand-over to each and one back.
(What is trained in a look is not lost.)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autoscaler.economics.stages import quantile
from autoscaler.economics.studies.constraints import StudyConstraints
from autoscaler.economics.studies.rung import Rung, StudySupply, TrialState
from autoscaler.economics.studies.study_plan import TrialAction, TrialDecision
from autoscaler.economics.studies.water_filling import Prospects
from autoscaler.economics.wording import duration, money

# Hyper-parameters change the speed of one trial by up to so much, and the guess of all by less.
_SURPRISE = 20.0
_ALL_SLOWER = 2.0
# Insurance for no more than this share of what is still to be paid.
_CHEAP = 0.05


def looks(
    decisions: tuple[TrialDecision, ...],
    rung: Rung,
    supply: StudySupply,
    aim: StudyConstraints,
    prospects: Prospects,
) -> tuple[TrialDecision, ...] | None:
    """The decisions while looks are worth it; None if they are not, or all have been looked at.

    Room is made by trials that train and were measured, and nothing else is
    changed. Looked at first is what is believed to take longest.
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
    why = _why(unknown, room, (rung, supply), aim, prospects)
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
    """Where looks can be taken: (the trial that makes room, a size), free instances first."""
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
    """Nothing else is changed while there are looks: in a minute more will be known."""
    if trial.held is None:
        reason = f"wait {trial.id} until all have been looked at"
        return replace(decision, action=TrialAction.WAIT, after=None, reason=reason)
    size = supply.sizes[trial.held]
    reason = f"hold {trial.id} at {size} until all have been looked at"
    return replace(decision, action=TrialAction.HOLD, size=size, after=None, reason=reason)


def _why(
    unknown: list[int],
    hosts: int,
    of: tuple[Rung, StudySupply],
    aim: StudyConstraints,
    prospects: Prospects,
) -> str | None:
    """Why looks are worth what they cost; None if they are not."""
    rung, supply = of
    switching, chosen = supply.switching, prospects.chosen
    each = switching.look_seconds + 2.0 * switching.handover_seconds
    rounds = -(-len(unknown) // hosts)
    costs = 2.0 * switching.handover_seconds * len(unknown) * float(supply.usd_per_second.min())
    text = f"a look of {duration(switching.look_seconds)}, {money(costs)} for all {len(unknown)}"
    late = np.maximum(chosen.packing.seconds - chosen.packing.barrier_seconds, 0.0).mean()
    saves = float(late) * chosen.usd_per_second
    if saves > costs + rounds * each * chosen.usd_per_second:
        return f"{text}, where not knowing costs {money(saves)}"
    if aim.deadline_seconds is None or costs > _CHEAP * float(chosen.usd.mean()):
        return None
    after = quantile(prospects.later_seconds, aim.confidence)
    barrier = quantile(chosen.packing.seconds, 0.5)
    if _ALL_SLOWER * (barrier + after) > aim.deadline_seconds:
        return f"{text}; were all twice as slow as believed, it would be too late"
    changes = float(supply.boot_seconds.min()) + switching.pause_seconds
    for place in unknown:
        seconds = _seconds(rung, supply, place)
        begins = quantile(chosen.packing.ends[:, place], 0.5) - seconds
        if begins + changes + _SURPRISE * seconds + after > aim.deadline_seconds:
            trial = rung.trials[place].id
            return f"{text}; were {trial} 20 times as slow as believed, it would be too late"
    return None


def _seconds(rung: Rung, supply: StudySupply, place: int) -> float:
    """The work of a trial where it is fastest."""
    rate = supply.with_reclaims(rung.trials[place].goodput)
    return quantile(rung.trials[place].to_decision / rate.max(axis=1), 0.5)
