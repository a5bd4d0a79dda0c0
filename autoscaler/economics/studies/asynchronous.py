"""The plan of an asynchronous search: as many trials as money, time and limits bring to an end.

No trial waits for another, and a unit of work costs least on the smallest size. So each trial
trains on its cheapest size, and what is decided is which trials begin. One begins if

- no more train than the deadline, or the value of the study's time, asks for (`at_once`);
- the budget pays for all of it beside what the trials that train still need, each to its end or
  to the deadline, whichever comes first;
- it can reach its first decision by the deadline;
- the limits leave room on one of the offers that it may use.

A trial that trains goes on until its pruner stops it. Only where the budget no longer pays for all
of them do those with most to do pause. Growth for a deadline, chosen by learning curves, was tried
and did not improve the models found (docs/studies-economics.md).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from autoscaler.economics.studies.at_once import AtOnce, trials_at_once
from autoscaler.economics.studies.goal import Purse, StudyGoal
from autoscaler.economics.studies.moment import StudyMoment, TrialAt
from autoscaler.economics.studies.room import Room
from autoscaler.economics.studies.verdicts import StudyVerdict, TrialVerdict
from autoscaler.economics.studies.ways import sizes_by_cost, start_seconds, way_usd
from autoscaler.economics.wording import duration, money

_MOST_ROOM = 10_000


def plan_asynchronous(moment: StudyMoment, goal: StudyGoal) -> StudyVerdict:
    """Return what each trial holds until the next news; a trial that waits may begin later."""
    at_once = trials_at_once(moment, goal, _room(moment))
    reserve = _reserve(moment, goal)
    trains = sum(one.held is not None for one in moment.trials) - len(reserve.paused)
    admission = _Admission(moment, goal, at_once, reserve.purse, trains)
    decided = dict(reserve.paused)
    waiting = [one for one in moment.trials if one.held is None]
    for trial in sorted(waiting, key=lambda one: one.stands.progress <= 0):
        decided[trial.id] = admission.admit(trial)
    trials = tuple(decided.get(one.id) or _holds(one, moment) for one in moment.trials)
    return StudyVerdict(
        trials=trials,
        usd_per_second=goal.bid,
        bid=at_once.bid,
        seconds=at_once.seconds,
        note=_note(moment, at_once, reserve, trials),
    )


@dataclass(frozen=True, slots=True)
class _Reserve:
    """Budget beyond what the trials that train need, and those for which it is not enough.

    Attributes:
        purse: the rest of the budget.
        paused: decisions on the trials that it does not pay for, by their ids.
        shortfall: what is missing; None if the budget pays for all that train.
    """

    purse: Purse
    paused: dict[str, TrialVerdict]
    shortfall: str | None


def _reserve(moment: StudyMoment, goal: StudyGoal) -> _Reserve:
    """Return what is left once each trial that trains is paid for, the shortest first.

    A trial that could not resume, or of unknown speed, does not pause; nor does the shortest.
    """
    purse = Purse(goal.left_usd)
    needs = sorted(
        (way_usd(one, one.held, one.to_end, moment, goal.deadline_seconds), one.id, one)
        for one in moment.trials
        if one.held is not None
    )
    paused: dict[str, TrialVerdict] = {}
    shortfall = None
    for place, (usd, name, trial) in enumerate(needs):
        bears = purse.bears(usd)
        if not bears:
            needed = money(sum(each for each, _, _ in needs))
            shortfall = (
                f"{needed} bring all that train to their ends, {money(goal.left_usd or 0)} is left"
            )
        if bears or place == 0 or not trial.is_measured or not moment.keeps_progress:
            purse.promise(usd)
        else:
            why = f"{purse.refusal(usd)}; it goes on when there is more"
            paused[name] = TrialVerdict(name, None, f"wait {name}: {why}")
    return _Reserve(purse, paused, shortfall)


class _Admission:
    """Decides which trials begin, in the order in which they are asked for."""

    def __init__(
        self, moment: StudyMoment, goal: StudyGoal, at_once: AtOnce, purse: Purse, trains: int
    ) -> None:
        self._moment, self._goal, self._at_once = moment, goal, at_once
        self._purse, self._trains = purse, trains
        self._room = Room(moment.supply)
        self._free = Counter[int]()
        for free in moment.free:
            offer = moment.supply.place_of[free.offer]
            self._free[offer] += free.instances
            self._room.take(offer, free.instances)
        for trial in moment.trials:
            if trial.held is not None:
                offer = int(moment.supply.offer_of[trial.held])
                self._room.take(offer, int(moment.supply.instances[trial.held]))

    def admit(self, trial: TrialAt) -> TrialVerdict:
        """Return the trial's start on its cheapest size with room, or why it waits."""
        sizes = sizes_by_cost(np.median(trial.goodput, axis=0), self._moment.supply)
        if not trial.can_train or not sizes:
            return _waits(trial, "nothing that it may use is offered")
        if self._at_once.trials is not None and self._trains >= self._at_once.trials:
            return _waits(trial, self._at_once.why)
        in_time = [size for size in sizes if self._is_in_time(trial, size)]
        if not in_time:
            return _waits(trial, self._too_late(trial, sizes[0]))
        size = next((size for size in in_time if self._has_room(size)), None)
        if size is None:
            return _waits(trial, "the limits leave no room for one more")
        usd = way_usd(trial, size, trial.to_end, self._moment, self._goal.deadline_seconds)
        if not self._purse.bears(usd) and not self._is_first_measurement:
            return _waits(trial, self._purse.refusal(usd))
        self._purse.promise(usd)
        self._take(size)
        self._trains += 1
        chosen = self._moment.supply.sizes[size]
        return TrialVerdict(
            trial.id, chosen, f"start {trial.id} on {chosen}: cheapest size for its work"
        )

    @property
    def _is_first_measurement(self) -> bool:
        """Whether nothing was measured yet and nothing trains: then no cost is known either."""
        return self._moment.is_blind and not self._trains and self._purse.is_open

    def _seconds_to_decision(self, trial: TrialAt, size: int) -> float:
        rate = float(np.median(trial.goodput[:, size]))
        supply = self._moment.supply
        is_ready = self._free[int(supply.offer_of[size])] >= supply.instances[size]
        waits = supply.switching.handover_seconds if is_ready else start_seconds(size, supply)
        return waits + (trial.to_decision or trial.to_end) / rate

    def _is_in_time(self, trial: TrialAt, size: int) -> bool:
        deadline = self._goal.deadline_seconds
        return deadline is None or self._seconds_to_decision(trial, size) <= deadline

    def _too_late(self, trial: TrialAt, size: int) -> str:
        takes = duration(self._seconds_to_decision(trial, size))
        return (
            f"its first rung takes {takes}, the deadline is in "
            f"{duration(self._goal.deadline_seconds or 0.0)}"
        )

    def _has_room(self, size: int) -> bool:
        supply = self._moment.supply
        offer = int(supply.offer_of[size])
        return self._room.bears(offer, int(supply.instances[size]) - self._free[offer])

    def _take(self, size: int) -> None:
        """Let the size be held: free instances of its offer first."""
        supply = self._moment.supply
        offer, needed = int(supply.offer_of[size]), int(supply.instances[size])
        free = min(self._free[offer], needed)
        self._free[offer] -= free
        self._room.take(offer, needed - free)


def _room(moment: StudyMoment) -> int:
    """Return how many more trials of the least size the limits bear, free instances included."""
    supply, room, count = moment.supply, Room(moment.supply), 0
    for one in moment.trials:
        if one.held is not None:
            room.take(int(supply.offer_of[one.held]), int(supply.instances[one.held]))
    for size in np.argsort(supply.instances, kind="stable").tolist():
        if moment.fresh[size] <= 0:
            continue
        offer, instances = int(supply.offer_of[size]), int(supply.instances[size])
        while count < _MOST_ROOM and room.bears(offer, instances):
            if not supply.limits:
                return _MOST_ROOM
            room.take(offer, instances)
            count += 1
    return count


def _holds(trial: TrialAt, moment: StudyMoment) -> TrialVerdict:
    assert trial.held is not None
    size = moment.supply.sizes[trial.held]
    reason = f"hold {trial.id} at {size}: a trial that trains is stopped by its pruner only"
    return TrialVerdict(trial.id, size, reason)


def _waits(trial: TrialAt, why: str) -> TrialVerdict:
    return TrialVerdict(trial.id, None, f"wait {trial.id}: {why}")


def _note(
    moment: StudyMoment, at_once: AtOnce, reserve: _Reserve, trials: tuple[TrialVerdict, ...]
) -> str | None:
    """Return what can't be kept; nothing is out of reach of trials that nobody has measured."""
    notes = [] if moment.is_blind else [at_once.shortfall, reserve.shortfall]
    left_usd = reserve.purse.left_usd
    if trials and all(one.target is None for one in trials) and left_usd is not None:
        notes.append(f"{money(max(left_usd, 0.0))} of the budget is left")
    return "; ".join(each for each in notes if each) or None
