"""A look at how trials scale, while there is time to make something of it.

Before any trial of a study has trained on more than it needs, nobody knows what more would bring.
Where later rungs may have to grow to be in time, it is dear to learn it then: the last trial grows
into a size that is no faster. So a trial or two grow early, as far as a few instances go; what is
measured of them tells of their siblings, and is a small share of what the study costs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autoscaler.economics.studies.room import Room
from autoscaler.economics.studies.rung import TrialState
from autoscaler.economics.studies.study_plan import StudyPlan, TrialAction, TrialDecision
from autoscaler.economics.studies.study_state import StudyState
from autoscaler.economics.studies.ways import start_seconds
from autoscaler.economics.wording import money

# So many trials are looked at, on so many times the devices that they hold.
_TRIALS = 2
_TIMES = 4.0
# What is learnt so is worth no more than this share of what the study still costs.
_CHEAP = 0.05


def with_scaling_looks(plan: StudyPlan, state: StudyState) -> StudyPlan:
    """The plan, in which a trial that would stay as it is grows for a look."""
    if (
        not plan.is_pressed
        or state.is_blind
        or len(state.teaching) >= _TRIALS
        or _grows(plan, state)
    ):
        return plan
    decided = {one.trial: place for place, one in enumerate(plan.decisions)}
    for trial in _longest_first(state):
        place = decided.get(trial.id)
        if place is None or plan.decisions[place].action is not TrialAction.HOLD:
            continue
        look = _look(trial, plan.decisions[place], plan, state)
        if look is not None:
            changed = (*plan.decisions[:place], look, *plan.decisions[place + 1 :])
            return replace(plan, decisions=changed)
    return plan


def _grows(plan: StudyPlan, state: StudyState) -> bool:
    """Whether a trial is about to teach it anyway."""
    least = int(state.supply.instances.min())
    holds = (one.target.instances for one in plan.decisions if one.target is not None)
    return any(instances > least for instances in holds) or any(
        one.held is not None and state.supply.instances[one.held] > least for one in state.trials
    )


def _longest_first(state: StudyState) -> list[TrialState]:
    """Those that train and were measured, on one size, who has most left to the barrier first."""
    found = [
        one
        for one in state.trials
        if one.held is not None
        and one.is_measured
        and one.ready_seconds == 0
        and one.id not in state.teaching
    ]
    return sorted(found, key=lambda one: (-_seconds(one), one.id))


def _seconds(trial: TrialState) -> float:
    assert trial.held is not None
    return trial.to_decision / max(float(np.median(trial.goodput[:, trial.held])), 1e-300)


def _room(plan: StudyPlan, state: StudyState) -> Room:
    """What the limits leave beside all that is planned, held, kept and ordered."""
    room, place_of = Room(state.supply), state.supply.place_of
    planned = {one.trial for one in plan.decisions if one.target is not None}
    for one in plan.decisions:
        if one.target is not None:
            room.take(place_of[one.target.offer], one.target.instances)
    for trial in state.trials:
        if trial.held is not None and trial.id not in planned:
            size = state.supply.sizes[trial.held]
            room.take(place_of[size.offer], size.instances)
    for free in state.free:
        room.take(place_of[free.offer], free.instances)
    if plan.standby is not None:
        room.take(place_of[plan.standby.offer], plan.standby.keep + plan.standby.order)
    return room


def _look(
    trial: TrialState, decision: TrialDecision, plan: StudyPlan, state: StudyState
) -> TrialDecision | None:
    """The size of the held offer that is nearest to so many times as many devices, if it pays."""
    assert trial.held is not None
    supply, held = state.supply, trial.held
    able = (trial.goodput > 0).all(axis=0) & (supply.offer_of == supply.offer_of[held])
    aimed = _TIMES * float(supply.instances[held])
    able &= (supply.instances > supply.instances[held]) & (supply.instances <= aimed)
    if not able.any():
        return None
    size = int(np.where(able, supply.instances, 0).argmax())
    added = float(supply.instances[size] - supply.instances[held])
    if not _room(plan, state).bears(int(supply.offer_of[held]), int(added)):
        return None
    takes = start_seconds(size, supply) + supply.switching.look_seconds
    billed = max(takes, float(supply.minimum_billed_seconds[size]))
    usd = added * float(supply.unit_usd_per_second[size]) * billed
    if plan.usd is None or _seconds(trial) < takes or usd > _CHEAP * plan.usd.median:
        return None
    reason = (
        f"grow {trial.id} {supply.sizes[held].instances} -> {supply.sizes[size]}: a look at what "
        f"more would bring, {money(usd)}; later rungs may need it to be in time"
    )
    return replace(decision, action=TrialAction.RESIZE, size=supply.sizes[size], reason=reason)
