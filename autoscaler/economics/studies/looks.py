"""A look at trials whose speed nobody knows yet, before they are put in an order.

A trial that waits may turn out to be the slow one that all will wait for. A few seconds of its
training tell. A look costs its seconds, a hand-over to it and one back; not looking costs the
study the time by which the barrier is passed on average, at what its time is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoscaler.economics.studies.rung import Rung, StudySupply
from autoscaler.economics.studies.study_plan import TrialAction, TrialDecision
from autoscaler.economics.studies.water_filling import Filling
from autoscaler.economics.wording import duration, money

_SPREAD = 0.2


def with_looks(
    decisions: tuple[TrialDecision, ...], rung: Rung, supply: StudySupply, chosen: Filling
) -> tuple[TrialDecision, ...]:
    """The decisions, those of trials to be looked at next and of who makes room in their place.

    Room is made by a trial that trains, was measured and was to go on as it is. The longest first
    of those that wait: where least is known, and what is likely to be in the way.
    """
    unknown = _unknown(decisions, rung)
    room = [
        index
        for index, (trial, decision) in enumerate(zip(rung.trials, decisions, strict=True))
        if trial.held is not None and trial.is_measured and decision.action is TrialAction.HOLD
    ]
    if not unknown or not room:
        return decisions
    costs, saves = _worth(len(unknown), len(room), supply, chosen)
    if saves <= costs:
        return decisions
    order = sorted(unknown, key=lambda index: -_slow_seconds(rung, supply, index))
    changed = list(decisions)
    for index, host in zip(order, room, strict=False):
        look = duration(supply.switching.look_seconds)
        why = f"a look of {look}: all looks cost {money(costs)}, not knowing {money(saves)}"
        trial, holder = rung.trials[index].id, rung.trials[host].id
        changed[index] = replace(
            decisions[index],
            action=TrialAction.TAKE_OVER,
            size=decisions[host].size,
            after=None,
            reason=f"start {trial} on {decisions[host].size} of {holder}: {why}",
        )
        changed[host] = replace(
            decisions[host],
            action=TrialAction.PAUSE,
            after=trial,
            reason=f"pause {holder} for a look at {trial}",
        )
    return tuple(changed)


def _unknown(decisions: Sequence[TrialDecision], rung: Rung) -> list[int]:
    return [
        index
        for index, (trial, decision) in enumerate(zip(rung.trials, decisions, strict=True))
        if not trial.is_measured and decision.action is TrialAction.WAIT
    ]


def _worth(looks: int, lanes: int, supply: StudySupply, chosen: Filling) -> tuple[float, float]:
    """What all looks cost, their time counted, and what they are likely to save, in US dollars."""
    switching, late = supply.switching, chosen.packing.seconds
    each = switching.look_seconds + 2.0 * switching.handover_seconds
    price = float(supply.usd_per_second.min())
    rounds = -(-looks // lanes)
    costs = each * (looks * price + rounds * chosen.usd_per_second)
    over = np.maximum(late - chosen.packing.barrier_seconds, 0.0).mean()
    return costs, float(over) * chosen.usd_per_second


def _slow_seconds(rung: Rung, supply: StudySupply, index: int) -> float:
    trial = rung.trials[index]
    rate = trial.goodput.max(axis=1)
    return float(np.quantile(trial.work / rate, 1.0 - _SPREAD))
