"""Plan of an asynchronous search: as many trials as money, time and limits bring to an end.

No trial waits for another, and a unit of work costs least on the smallest size. So each trial
trains on its cheapest size, and the plan decides which trials begin. A trial begins if

- no more trials train than the deadline, or the value of the study's time, asks for
  (`concurrency`);
- the budget pays for all of it beside what the trials that train still need, each to its end or
  to the deadline, whichever comes first;
- it can reach its first decision by the deadline;
- the limits leave room on one of the offers that it may use.

A trial that trains goes on until its pruner stops it. If the budget no longer brings all of them
to their next decisions, those with most to do pause. Growth for a deadline, chosen by learning
curves, was tried and did not improve the models found (docs/studies-economics.md).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from autoscaler.economics.forecasts.forecast import Range
from autoscaler.economics.pricing.wording import duration, money
from autoscaler.economics.studies.concurrency import Concurrency, concurrent_trials
from autoscaler.economics.studies.constraints import BudgetTracker, StudyConstraints
from autoscaler.economics.studies.study_plan import (
    StudyPlan,
    TrialAction,
    TrialDecision,
    WaitCause,
    holds,
    waits,
)
from autoscaler.economics.studies.study_state import StudyState
from autoscaler.economics.studies.supply import Room, StudySupply
from autoscaler.economics.studies.trial_state import TrialState, remaining_cost_usd

_MOST_ROOM = 10_000


def plan_asynchronous(state: StudyState, constraints: StudyConstraints) -> StudyPlan:
    """Return what each trial holds until the next event."""
    reserve = _reserve(state, constraints)
    concurrency = concurrent_trials(state, constraints, _room(state))
    admission = _Admission(state, constraints, concurrency, reserve)
    decisions = dict(reserve.paused)
    waiting = [trial for trial in state.trials if trial.held is None]
    for trial in sorted(waiting, key=lambda trial: trial.progress.progress <= 0):
        decisions[trial.id] = admission.admit(trial)
    final = tuple(
        decisions.get(trial.id)
        or holds(trial.id, state.supply.sizes[trial.held or 0], ": only its pruner stops it")
        for trial in state.trials
    )
    seconds = concurrency.seconds
    return StudyPlan(
        decisions=final,
        usd_per_second=constraints.bid,
        bid=concurrency.bid,
        seconds=None if seconds is None else Range(*4 * (seconds,)),
        shortfall=_shortfall(state, concurrency, reserve, final),
    )


@dataclass(frozen=True, slots=True)
class _Reserve:
    """Budget left beside what the trials that train need.

    Attributes:
        budget: rest of the budget.
        paused: decisions on trials that the budget does not pay for, by their ids.
        shortfall: missing amount in words; None if the budget pays for all that train.
    """

    budget: BudgetTracker
    paused: dict[str, TrialDecision]
    shortfall: str | None


def _reserve(state: StudyState, constraints: StudyConstraints) -> _Reserve:
    """Reserve the budget that the trials that train need.

    A trial pauses if the budget does not pay for its work to its next decision, beside that of
    trials with less to do. The cost of its end is reserved only while it trains: most trials are
    pruned before. A trial that could not resume, or of unknown speed, does not pause, nor does the
    one with least to do.
    """

    def cost(trial: TrialState, work: float) -> float:
        within = constraints.deadline_seconds
        return remaining_cost_usd(trial, trial.held or 0, work, state.supply, within)

    budget = BudgetTracker(constraints.budget_usd)
    training = [trial for trial in state.trials if trial.held is not None]
    to_end = {trial.id: cost(trial, trial.to_end) for trial in training}
    soon = {trial.id: cost(trial, trial.to_decision or trial.to_end) for trial in training}
    training.sort(key=lambda trial: (to_end[trial.id], trial.id))
    paused: dict[str, TrialDecision] = {}
    shortfall = None
    for place, trial in enumerate(training):
        usd = soon[trial.id]
        pays = budget.pays(usd)
        if not pays:
            needed, left = money(sum(soon.values())), money(constraints.budget_usd or 0.0)
            shortfall = f"{needed} bring all that train to their next decisions, {left} is left"
        if pays or place == 0 or not trial.is_measured or not state.keeps_progress:
            budget.reserve(usd)
        else:
            why = f": {budget.refusal(usd)}; it goes on when there is more"
            paused[trial.id] = waits(trial.id, WaitCause.BUDGET, why)
    for trial in training:
        if trial.id not in paused:
            budget.reserve(to_end[trial.id] - soon[trial.id])
    return _Reserve(budget, paused, shortfall)


class _Admission:
    """Decides which trials begin, in the order in which it is asked."""

    def __init__(
        self,
        state: StudyState,
        constraints: StudyConstraints,
        concurrency: Concurrency,
        reserve: _Reserve,
    ) -> None:
        self._state, self._supply = state, state.supply
        self._constraints, self._concurrency = constraints, concurrency
        self._budget = reserve.budget
        self._training = sum(trial.held is not None for trial in state.trials)
        self._training -= len(reserve.paused)
        self._room = _room_beside_trials(state)
        self._free = Counter[int]()
        for freed in state.free:
            offer = state.supply.place_of[freed.offer]
            self._free[offer] += freed.instances
            self._room.take(offer, freed.instances)

    def admit(self, trial: TrialState) -> TrialDecision:
        """Return the trial's start on its cheapest size with room, or why it waits."""
        sizes = self._supply.by_cost(np.median(trial.goodput, axis=0))
        if not trial.can_train or not sizes:
            return waits(trial.id, WaitCause.NO_OFFER, ": nothing that it may use is offered")
        most = self._concurrency.trials
        if most is not None and self._training >= most:
            is_late = self._constraints.begins_none
            cause = WaitCause.DEADLINE if is_late else WaitCause.ENOUGH_TRAIN
            return waits(trial.id, cause, f": {self._concurrency.why}")
        in_time = [size for size in sizes if self._is_in_time(trial, size)]
        if not in_time:
            return waits(trial.id, WaitCause.DEADLINE, f": {self._too_late(trial, sizes[0])}")
        size = next((size for size in in_time if self._has_room(size)), None)
        if size is None:
            return waits(trial.id, WaitCause.LIMITS, ": the limits leave no room for one more")
        within = self._constraints.deadline_seconds
        usd = remaining_cost_usd(trial, size, trial.to_end, self._supply, within)
        if not self._budget.pays(usd) and not self._is_first_measurement:
            return waits(trial.id, WaitCause.BUDGET, f": {self._budget.refusal(usd)}")
        self._budget.reserve(usd)
        self._take(size)
        self._training += 1
        chosen = self._supply.sizes[size]
        reason = f"start {trial.id} on {chosen}: cheapest size for its work"
        return TrialDecision(trial.id, TrialAction.START, chosen, reason)

    @property
    def _is_first_measurement(self) -> bool:
        """Whether no cost is known: nothing was measured yet and nothing trains."""
        return self._state.is_blind and not self._training and self._budget.is_open

    def _seconds_to_decision(self, trial: TrialState, size: int) -> float:
        rate = float(np.median(trial.goodput[:, size]))
        offer, needed = _instances(self._supply, size)
        starts = self._supply.order_seconds(size)
        if self._free[offer] >= needed:
            starts = self._supply.switching.handover_seconds
        return starts + (trial.to_decision or trial.to_end) / rate

    def _is_in_time(self, trial: TrialState, size: int) -> bool:
        deadline = self._constraints.deadline_seconds
        return deadline is None or self._seconds_to_decision(trial, size) <= deadline

    def _too_late(self, trial: TrialState, size: int) -> str:
        takes = duration(self._seconds_to_decision(trial, size))
        due = duration(self._constraints.deadline_seconds or 0.0)
        return f"its first rung takes {takes}, the deadline is in {due}"

    def _has_room(self, size: int) -> bool:
        offer, needed = _instances(self._supply, size)
        return self._room.bears(offer, needed - self._free[offer])

    def _take(self, size: int) -> None:
        """Count a size as held, free instances of its offer first."""
        offer, needed = _instances(self._supply, size)
        free = min(self._free[offer], needed)
        self._free[offer] -= free
        self._room.take(offer, needed - free)


def _instances(supply: StudySupply, size: int) -> tuple[int, int]:
    """Return the offer and the number of instances of a size."""
    return int(supply.offer_of[size]), int(supply.instances[size])


def _room_beside_trials(state: StudyState) -> Room:
    """Return the room that the limits leave beside what trials hold."""
    room = Room(state.supply)
    for trial in state.trials:
        if trial.held is not None:
            room.take(*_instances(state.supply, trial.held))
    return room


def _room(state: StudyState) -> int:
    """Return how many more trials the limits permit, each on its least size."""
    supply, room, count = state.supply, _room_beside_trials(state), 0
    for size in np.argsort(supply.instances, kind="stable").tolist():
        if state.fresh[size] <= 0:
            continue
        offer, instances = _instances(supply, size)
        while count < _MOST_ROOM and room.bears(offer, instances):
            if not supply.limits:
                return _MOST_ROOM
            room.take(offer, instances)
            count += 1
    return count


def _shortfall(
    state: StudyState,
    concurrency: Concurrency,
    reserve: _Reserve,
    decisions: tuple[TrialDecision, ...],
) -> str | None:
    """Return what can't be kept; nothing is out of reach before a trial was measured."""
    notes = [] if state.is_blind else [concurrency.shortfall, reserve.shortfall]
    left_usd = reserve.budget.left_usd
    if (
        decisions
        and left_usd is not None
        and all(decision.target is None for decision in decisions)
    ):
        notes.append(f"{money(max(left_usd, 0.0))} of the budget is left")
    return "; ".join(note for note in notes if note) or None
