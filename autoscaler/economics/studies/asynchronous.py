"""The plan of an asynchronous search: as many trials as money, time and limits bring to an end.

No trial waits for another, and a unit of work costs least on the smallest size. So each trial
trains on its cheapest size, and what is decided is which trials begin. One begins if

- no more train than the deadline, or the value of the study's time, asks for (`at_once`);
- the budget pays for all of it beside what the trials that train still need, each to its end or
  to the deadline, whichever comes first;
- it can reach its first decision by the deadline;
- the limits leave room on one of the offers that it may use.

A trial that trains goes on until its pruner stops it. Only where the budget no longer brings all
of them to their next decisions do those with most to do pause. Growth for a deadline, chosen by
learning curves, was tried and did not improve the models found (docs/studies-economics.md).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from autoscaler.economics.forecast import Range
from autoscaler.economics.studies.at_once import AtOnce, trials_at_once
from autoscaler.economics.studies.constraints import BudgetTracker, StudyConstraints
from autoscaler.economics.studies.room import Room
from autoscaler.economics.studies.rung import TrialState
from autoscaler.economics.studies.study_plan import (
    StudyPlan,
    TrialAction,
    TrialDecision,
    WaitCause,
    holds,
    waits,
)
from autoscaler.economics.studies.study_state import StudyState
from autoscaler.economics.studies.ways import sizes_by_cost, start_seconds, way_usd
from autoscaler.economics.wording import duration, money

_MOST_ROOM = 10_000


def plan_asynchronous(state: StudyState, constraints: StudyConstraints) -> StudyPlan:
    """Return what each trial holds until the next news; a trial that waits may begin later."""
    reserve = _reserve(state, constraints)
    at_once = trials_at_once(state, constraints, _room(state))
    admission = _Admission(state, constraints, at_once, reserve)
    decided = dict(reserve.paused)
    waiting = [one for one in state.trials if one.held is None]
    for trial in sorted(waiting, key=lambda one: one.progress.progress <= 0):
        decided[trial.id] = admission.admit(trial)
    trials = tuple(
        decided.get(one.id)
        or holds(one.id, state.supply.sizes[one.held or 0], ": only its pruner stops it")
        for one in state.trials
    )
    return StudyPlan(
        decisions=trials,
        usd_per_second=constraints.bid,
        bid=at_once.bid,
        seconds=None if at_once.seconds is None else Range(*4 * (at_once.seconds,)),
        shortfall=_shortfall(state, at_once, reserve, trials),
    )


@dataclass(frozen=True, slots=True)
class _Reserve:
    """Budget beyond what the trials that train need, and those for which it is not enough.

    Attributes:
        budget: the rest of the budget.
        paused: decisions on the trials that it does not pay for, by their ids.
        shortfall: what is missing; None if the budget pays for all that train.
    """

    budget: BudgetTracker
    paused: dict[str, TrialDecision]
    shortfall: str | None


def _reserve(state: StudyState, constraints: StudyConstraints) -> _Reserve:
    """Return what is left of the budget once the trials that train are paid for.

    A trial pauses if the budget does not pay for its way to its next decision, beside those of
    trials with less to do. The money for its end is kept only while it trains: most are pruned
    before. A trial that could not resume, or of unknown speed, does not pause, nor does the one
    with least to do.
    """
    within = constraints.deadline_seconds
    budget = BudgetTracker(constraints.budget_usd)
    ways = sorted(
        (way_usd(one, one.held, one.to_end, state, within), one.id, one)
        for one in state.trials
        if one.held is not None
    )
    soon = {
        one.id: way_usd(one, one.held, one.to_decision or one.to_end, state, within)
        for _, _, one in ways
        if one.held is not None
    }
    paused: dict[str, TrialDecision] = {}
    shortfall = None
    for place, (_, name, trial) in enumerate(ways):
        pays = budget.pays(soon[name])
        if not pays:
            needed, left = money(sum(soon.values())), money(constraints.budget_usd or 0.0)
            shortfall = f"{needed} bring all that train to their next decisions, {left} is left"
        if pays or place == 0 or not trial.is_measured or not state.keeps_progress:
            budget.reserve(soon[name])
        else:
            why = f": {budget.refusal(soon[name])}; it goes on when there is more"
            paused[name] = waits(name, WaitCause.BUDGET, why)
    for usd, name, _ in ways:
        if name not in paused:
            budget.reserve(usd - soon[name])
    return _Reserve(budget, paused, shortfall)


class _Admission:
    """Decides which trials begin, in the order in which they are asked for."""

    def __init__(
        self, state: StudyState, constraints: StudyConstraints, at_once: AtOnce, reserve: _Reserve
    ) -> None:
        self._state, self._constraints, self._at_once = state, constraints, at_once
        self._budget = reserve.budget
        self._trains = sum(one.held is not None for one in state.trials) - len(reserve.paused)
        self._room = Room(state.supply)
        self._free = Counter[int]()
        for free in state.free:
            offer = state.supply.place_of[free.offer]
            self._free[offer] += free.instances
            self._room.take(offer, free.instances)
        for trial in state.trials:
            if trial.held is not None:
                offer = int(state.supply.offer_of[trial.held])
                self._room.take(offer, int(state.supply.instances[trial.held]))

    def admit(self, trial: TrialState) -> TrialDecision:
        """Return the trial's start on its cheapest size with room, or why it waits."""
        sizes = sizes_by_cost(np.median(trial.goodput, axis=0), self._state.supply)
        if not trial.can_train or not sizes:
            return waits(trial.id, WaitCause.NO_OFFER, ": nothing that it may use is offered")
        if self._at_once.trials is not None and self._trains >= self._at_once.trials:
            is_late = self._constraints.begins_none
            cause = WaitCause.DEADLINE if is_late else WaitCause.ENOUGH_TRAIN
            return waits(trial.id, cause, f": {self._at_once.why}")
        in_time = [size for size in sizes if self._is_in_time(trial, size)]
        if not in_time:
            return waits(trial.id, WaitCause.DEADLINE, f": {self._too_late(trial, sizes[0])}")
        size = next((size for size in in_time if self._has_room(size)), None)
        if size is None:
            return waits(trial.id, WaitCause.LIMITS, ": the limits leave no room for one more")
        usd = way_usd(trial, size, trial.to_end, self._state, self._constraints.deadline_seconds)
        if not self._budget.pays(usd) and not self._is_first_measurement:
            return waits(trial.id, WaitCause.BUDGET, f": {self._budget.refusal(usd)}")
        self._budget.reserve(usd)
        self._take(size)
        self._trains += 1
        chosen = self._state.supply.sizes[size]
        reason = f"start {trial.id} on {chosen}: cheapest size for its work"
        return TrialDecision(trial.id, TrialAction.START, chosen, reason)

    @property
    def _is_first_measurement(self) -> bool:
        """Whether nothing was measured yet and nothing trains: then no cost is known either."""
        return self._state.is_blind and not self._trains and self._budget.is_open

    def _seconds_to_decision(self, trial: TrialState, size: int) -> float:
        rate = float(np.median(trial.goodput[:, size]))
        supply = self._state.supply
        is_ready = self._free[int(supply.offer_of[size])] >= supply.instances[size]
        waits = supply.switching.handover_seconds if is_ready else start_seconds(size, supply)
        return waits + (trial.to_decision or trial.to_end) / rate

    def _is_in_time(self, trial: TrialState, size: int) -> bool:
        deadline = self._constraints.deadline_seconds
        return deadline is None or self._seconds_to_decision(trial, size) <= deadline

    def _too_late(self, trial: TrialState, size: int) -> str:
        takes = duration(self._seconds_to_decision(trial, size))
        return (
            f"its first rung takes {takes}, the deadline is in "
            f"{duration(self._constraints.deadline_seconds or 0.0)}"
        )

    def _has_room(self, size: int) -> bool:
        supply = self._state.supply
        offer = int(supply.offer_of[size])
        return self._room.bears(offer, int(supply.instances[size]) - self._free[offer])

    def _take(self, size: int) -> None:
        """Let the size be held: free instances of its offer first."""
        supply = self._state.supply
        offer, needed = int(supply.offer_of[size]), int(supply.instances[size])
        free = min(self._free[offer], needed)
        self._free[offer] -= free
        self._room.take(offer, needed - free)


def _room(state: StudyState) -> int:
    """Return how many more trials of the least size the limits bear, free instances included."""
    supply, room, count = state.supply, Room(state.supply), 0
    for one in state.trials:
        if one.held is not None:
            room.take(int(supply.offer_of[one.held]), int(supply.instances[one.held]))
    for size in np.argsort(supply.instances, kind="stable").tolist():
        if state.fresh[size] <= 0:
            continue
        offer, instances = int(supply.offer_of[size]), int(supply.instances[size])
        while count < _MOST_ROOM and room.bears(offer, instances):
            if not supply.limits:
                return _MOST_ROOM
            room.take(offer, instances)
            count += 1
    return count


def _shortfall(
    state: StudyState, at_once: AtOnce, reserve: _Reserve, trials: tuple[TrialDecision, ...]
) -> str | None:
    """Return what can't be kept; nothing is out of reach of trials that nobody has measured."""
    notes = [] if state.is_blind else [at_once.shortfall, reserve.shortfall]
    budget_usd = reserve.budget.left_usd
    if trials and all(one.target is None for one in trials) and budget_usd is not None:
        notes.append(f"{money(max(budget_usd, 0.0))} of the budget is left")
    return "; ".join(each for each in notes if each) or None
