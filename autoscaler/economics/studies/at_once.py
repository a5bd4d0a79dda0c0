"""How many trials of an asynchronous study train at once.

What is left to do is one stage: the trials under way and those to begin, on sizes of least $ for
their work, `T` seconds together, the longest of which takes `L`. On `n` instances, one trial after
the other on each, it takes at most T/n + (1 - 1/n) L (Graham 1966), whatever comes first. The work
costs the same on many as on few; what one more costs is its boot. So

- for a deadline as few as are done by then;
- else as many as make boots and the worth of the time, ``n boot + v T/n``, least: about the root
  of ``v T / boot``. What more at once loses, that each knows less of the others, is not in it.

Trials without
number begin as limits, budget and deadline allow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from autoscaler.economics.studies.constraints import StudyConstraints
from autoscaler.economics.studies.study_state import StudyState
from autoscaler.economics.studies.ways import cheapest_size, size_of, start_seconds
from autoscaler.economics.wording import duration, money, per_hour

_MOST_TO_BEGIN = 10_000


@dataclass(frozen=True, slots=True)
class AtOnce:
    """How many trials are to train at once, and why.

    Attributes:
        trials: None: as many as limits and budget bear.
        why: in words, for one that waits.
        seconds: when all is likely to be done; None: not known.
        bid: $ a second that one more of them is worth, beyond its price.
        shortfall: what can't be kept, and what can; None: all can.
    """

    trials: int | None
    why: str
    seconds: float | None
    bid: float
    shortfall: str | None = None


@dataclass(frozen=True, slots=True)
class _Stage:
    """What is left to do: trials, seconds of all together, the longest; boot of one more."""

    trials: int
    mean_seconds: float
    sure_seconds: float
    longest_seconds: float
    boot_usd: float
    start_seconds: float

    def seconds(self, at_once: int, surely: bool = True) -> float:
        """Until all is done with so many at once."""
        together = self.sure_seconds if surely else self.mean_seconds
        each = together / at_once
        if not surely:
            return self.start_seconds + max(each, self.longest_seconds)
        return self.start_seconds + each + (1.0 - 1.0 / at_once) * self.longest_seconds


def trials_at_once(state: StudyState, constraints: StudyConstraints, room: int) -> AtOnce:
    """How many trials are to train at once.

    Args:
        state: the study.
        constraints: what it is to come to.
        room: how many more than train now the limits bear.
    """
    training = sum(one.held is not None for one in state.trials)
    if constraints.begins_none:
        return AtOnce(training, constraints.note or "", None, 0.0)
    stage = _stage(state, constraints)
    if stage is None:
        return AtOnce(None, "", None, constraints.bid / (training + 1))
    most = min(stage.trials, max(training + room, 1))
    if constraints.deadline_seconds is not None:
        return _for_deadline(stage, constraints, most)
    return _for_time(stage, constraints, most, max(training + len(state.free), 1))


def _for_deadline(stage: _Stage, constraints: StudyConstraints, most: int) -> AtOnce:
    assert constraints.deadline_seconds is not None
    for count in range(1, most + 1):
        if stage.seconds(count) <= constraints.deadline_seconds:
            due = duration(constraints.deadline_seconds)
            text = f"{count} at once are enough for the deadline in {due}"
            return AtOnce(count, text, stage.seconds(count, surely=False), constraints.bid / count)
    takes = stage.seconds(most)
    shortfall = None
    if takes > constraints.deadline_seconds:
        shortfall = (
            f"a deadline in {duration(constraints.deadline_seconds)} is out of reach: "
            f"{most} at once are done in {duration(takes)}"
        )
    return AtOnce(
        most,
        f"there is room for {most} at a time",
        stage.seconds(most, surely=False),
        constraints.bid / most,
        shortfall,
    )


def _for_time(stage: _Stage, constraints: StudyConstraints, most: int, at_hand: int) -> AtOnce:
    worth = constraints.usd_per_second
    counts = np.arange(1, most + 1)
    boots = stage.boot_usd * np.maximum(counts - at_hand, 0)
    time = np.maximum(stage.mean_seconds / counts, stage.longest_seconds)
    best = int((boots + worth * time).argmin())
    count = int(counts[best])
    saves = worth * float(
        time[best] - np.maximum(stage.mean_seconds / (count + 1), stage.longest_seconds)
    )
    text = (
        f"there is room for {count} at a time"
        if count == most
        else f"{count} at once are best: one more saves {money(saves)} of time at "
        f"{per_hour(worth)}, its boot costs {money(stage.boot_usd)}"
    )
    return AtOnce(count, text, stage.start_seconds + float(time[best]), worth / count)


def _stage(state: StudyState, constraints: StudyConstraints) -> _Stage | None:
    """All that is left to do as one stage; None: there is no end to it, or nothing can run."""
    supply, to_begin = state.supply, state.study.terms.to_begin
    size = cheapest_size(state.fresh, supply)
    if to_begin is None or size is None:
        return None
    to_begin = min(to_begin, _MOST_TO_BEGIN)
    lefts: list[tuple[float, float]] = []
    for trial in state.trials:
        own = size_of(trial, supply)
        if own is None:
            continue
        rate = float(np.median(trial.goodput[:, own])) or float(state.fresh[own]) or math.inf
        mean, spread = state.lengths.left(trial.progress.progress)
        starts = 0.0 if trial.held is not None else supply.switching.handover_seconds
        lefts.append((starts + min(mean, trial.to_end) / rate, spread / rate))
    begins = supply.switching.handover_seconds
    mean, spread = state.lengths.left(0.0)
    rate = float(state.fresh[size])
    fresh = begins + mean / rate, spread / rate
    together = sum(each for each, _ in lefts) + to_begin * fresh[0]
    variance = sum(each**2 for _, each in lefts) + to_begin * fresh[1] ** 2
    sureness = NormalDist().inv_cdf(constraints.confidence)
    longest = max(
        (each + sureness * sd for each, sd in [*lefts, *([fresh] if to_begin else [])]),
        default=0.0,
    )
    longest = min(longest, begins + state.full_work / rate) if to_begin else longest
    is_held = any(trial.held is not None for trial in state.trials)
    boot = start_seconds(size, supply)
    billed = max(boot, float(supply.minimum_billed_seconds[size]))
    return _Stage(
        trials=max(len(lefts) + to_begin, 1),
        mean_seconds=together,
        sure_seconds=together + sureness * math.sqrt(variance),
        longest_seconds=longest,
        boot_usd=billed * float(supply.usd_per_second[size]),
        start_seconds=0.0 if is_held else boot,
    )
