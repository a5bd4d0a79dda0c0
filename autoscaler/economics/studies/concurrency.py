"""Number of trials of an asynchronous study that train at the same time.

The trials under way and those to begin need `T` instance-seconds together, the longest of them
`L`. On n instances, one trial after another on each, they take at most T/n + (1 - 1/n) L
(Graham 1966), in any order. The work costs the same on many as on few instances; one more costs
its boot. So a study with a deadline trains the fewest at a time that meet it, and another as many
as make ``n boot + v T/n`` least, about the root of ``v T / boot``. That a sampler knows less while
more train at a time is left out. Trials without number begin as limits and budget allow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.economics.pricing.wording import duration, money, per_hour
from autoscaler.economics.studies.constraints import StudyConstraints
from autoscaler.economics.studies.study_state import StudyState
from autoscaler.economics.studies.trial_state import size_of
from autoscaler.goodput.throughput import FloatArray

_MOST_TO_BEGIN = 10_000


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Number of trials to train at the same time, and why.

    Attributes:
        trials: the number; None: as many as limits and budget bear.
        why: the reason of a trial that waits.
        seconds: until all trials have ended; None: not known.
        bid: $ a second that one more is worth, beyond its price.
        shortfall: what can't be kept, and what can; None: all can.
    """

    trials: int | None
    why: str
    seconds: float | None
    bid: float
    shortfall: str | None = None


def concurrent_trials(state: StudyState, constraints: StudyConstraints, room: int) -> Concurrency:
    """Return how many trials are to train at the same time.

    Args:
        state: the study.
        constraints: its deadline, budget and value of time.
        room: number of trials, beyond those that train, for which the limits leave room.
    """
    training = sum(trial.held is not None for trial in state.trials)
    size = next(iter(state.supply.by_cost(state.fresh)), None)
    if constraints.begins_none:
        return Concurrency(training, constraints.note or "", None, 0.0)
    if state.study.terms.to_begin is None or size is None:
        return Concurrency(None, "", None, constraints.bid / (training + 1))
    work = _seconds_of_each(state, size)
    counts = np.arange(1, min(len(work), max(training + room, 1)) + 1)
    order_seconds = state.supply.order_seconds(size)
    starts = 0.0 if training else order_seconds
    seconds = starts + work.sum() / counts + (1.0 - 1.0 / counts) * work.max(initial=0.0)
    if constraints.deadline_seconds is not None:
        return _for_deadline(seconds, constraints, constraints.deadline_seconds)
    at_hand = max(training + len(state.free), 1)
    billed = max(order_seconds, float(state.supply.minimum_billed_seconds[size]))
    boot_usd = billed * float(state.supply.usd_per_second[size])
    return _for_time(seconds, boot_usd * np.maximum(counts - at_hand, 0), constraints)


def _seconds_of_each(state: StudyState, size: int) -> FloatArray:
    """Return the instance-seconds of each trial that is there or is to begin, at least one.

    A trial that trains may go on to the end, one that is to begin as far as those went that have
    ended.
    """
    supply, handover = state.supply, state.supply.switching.handover_seconds
    seconds = []
    for trial in state.trials:
        trial_size = size_of(trial, supply)
        rate = 0.0 if trial_size is None else float(np.median(trial.goodput[:, trial_size]))
        starts = 0.0 if trial.held is not None else handover
        if rate > 0:
            seconds.append(starts + trial.to_end / rate)
    to_begin = min(state.study.terms.to_begin or 0, _MOST_TO_BEGIN)
    seconds += [handover + state.usual_work / float(state.fresh[size])] * to_begin
    return np.array(seconds or [0.0])


def _for_deadline(
    seconds: FloatArray, constraints: StudyConstraints, deadline_seconds: float
) -> Concurrency:
    in_time = np.flatnonzero(seconds <= deadline_seconds)
    place = int(in_time[0]) if len(in_time) else len(seconds) - 1
    due = duration(deadline_seconds)
    why, shortfall = f"{place + 1} at once are enough for the deadline in {due}", None
    if not len(in_time):
        why = f"there is room for {place + 1} at a time"
        takes = duration(float(seconds[place]))
        shortfall = f"a deadline in {due} is out of reach: {place + 1} at once are done in {takes}"
    bid = constraints.bid / (place + 1)
    return Concurrency(place + 1, why, float(seconds[place]), bid, shortfall)


def _for_time(
    seconds: FloatArray, boots_usd: FloatArray, constraints: StudyConstraints
) -> Concurrency:
    worth = constraints.usd_per_second
    place = int((boots_usd + worth * seconds).argmin())
    why = f"there is room for {place + 1} at a time"
    if place + 1 < len(seconds):
        saves = money(worth * float(seconds[place] - seconds[place + 1]))
        costs = money(float(boots_usd[place + 1] - boots_usd[place]))
        why = (
            f"{place + 1} at once are best: one more saves {saves} of time at "
            f"{per_hour(worth)}, its boot costs {costs}"
        )
    return Concurrency(place + 1, why, float(seconds[place]), worth / (place + 1))
