"""Before a dollar is spent: what money buys of time, and where an objective lands on that.

A whole job on one allocation has a finish and a cost, draw by draw. Waiting at value of time v,
its mean costs ``usd + v * seconds``: what is best at some v is a corner of the lower hull of the
means of (seconds, usd). Those whose medians rise in cost and fall in time, as their means do, are
the frontier. What lies between two corners is had by holding one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.objective import AfterDeadline
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.aims import ends_of, stages_that_keep
from autoscaler.economics.candidates import Candidates, candidates
from autoscaler.economics.forecast import Range, range_of
from autoscaler.economics.objectives import (
    price_range,
    value_of_time,
    value_of_time_when_late,
)
from autoscaler.economics.stages import Ends, Shortfall, Stages, plan_stages, quantile
from autoscaler.economics.stays import SpotField, spot_field
from autoscaler.economics.supply import SECONDS_PER_HOUR, IntArray, supply_of
from autoscaler.economics.switching import Ground, switches
from autoscaler.economics.wording import duration, money, percent
from autoscaler.goodput.throughput import FloatArray


@dataclass(frozen=True, slots=True)
class Prospect:
    """A whole job: `first`, and from `first_share` of its work on `then`, if that is another.

    `seconds` are from now to its end, `usd` all that it costs. `from_value_of_time` ($/h) is
    where it begins to be the best; None if it is at no value of time. `is_measured`: step times
    of these sizes are known.
    """

    first: Allocation
    then: Allocation
    first_share: float
    seconds: Range
    usd: Range
    from_value_of_time: float | None
    is_measured: bool


@dataclass(frozen=True, slots=True)
class HourlyRate:
    """Price of one allocation, and useful examples a second there; None: not measured yet."""

    allocation: Allocation
    usd_per_hour: float
    examples_per_second: Range | None


@dataclass(frozen=True, slots=True)
class Frontier:
    """What one job may have, if it has the supply to itself.

    `corners` rise in cost and fall in time; `others` are all other allocations. `chosen` is
    where the objective lands, None where it wants nothing. `value_of_time` ($/h) is what it comes
    to without a deadline or a budget. `chance` is that of keeping those, None where there are
    none. `shortfall` says why the objective can't be kept and what could be. `rates` are there
    only where nobody knows how much there is to do, and then nothing else is.
    """

    corners: tuple[Prospect, ...]
    others: tuple[Prospect, ...]
    chosen: Prospect | None
    value_of_time: float
    chance: float | None = None
    shortfall: str | None = None
    rates: tuple[HourlyRate, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Courses:
    """B ways to do all the work: of each draw its seconds and US dollars, (K, B)."""

    seconds: FloatArray
    usd: FloatArray


def frontier(job: JobSnapshot, snapshot: Snapshot) -> Frontier | None:
    """Return the frontier of a job that holds nothing yet; None if no offer can run it.

    Where nobody knows how much there is to do, only the rates of its allocations are known.
    """
    work = job.remaining_examples
    supply = supply_of(snapshot)
    at = Ground(candidates(job, supply), job.switching, supply.maximum, has_run=False)
    if not len(at.candidates):
        return None
    prices = price_range(job, supply)
    asked = value_of_time(job.objective, prices)
    if work is None or not np.isfinite(work):
        rates = _rates(at.candidates)
        return Frontier((), (), None, asked * SECONDS_PER_HOUR, rates=rates)
    field = _Field(at, work, spot_field(job, snapshot, asked))
    ends = ends_of(job, supply)
    corners, others = field.corners()
    if ends.seconds is None and ends.usd is None:
        chosen = field.best(asked)
        return Frontier(corners, others, chosen, asked * SECONDS_PER_HOUR)
    found = stages_that_keep(ends, at, work, supply.replan_seconds)
    if isinstance(found, Stages):
        chosen = field.drawn(field.prospect(found.first, found.then, found.change_examples))
        missed = None
        if found.chance < ends.confidence:
            missed = f"{_only(found.chance, ends)}: {field.in_reach(ends, supply.replan_seconds)}"
        return Frontier(corners, others, chosen, asked * SECONDS_PER_HOUR, found.chance, missed)
    text = f"{_missed(found, ends)}: {field.in_reach(ends, supply.replan_seconds)}"
    late = job.objective.after_deadline
    if ends.seconds is not None and late is AfterDeadline.STOP:
        return Frontier(corners, others, None, asked * SECONDS_PER_HOUR, 0.0, text)
    asked = 0.0 if ends.usd is not None else value_of_time_when_late(job.objective, prices)
    instead = field.best(asked)
    if ends.usd is not None:  # which stands, whatever becomes of the deadline
        kept = stages_that_keep(replace(ends, seconds=None), at, work, supply.replan_seconds)
        if isinstance(kept, Stages):
            instead = field.drawn(field.prospect(kept.first, kept.then, kept.change_examples))
    return Frontier(corners, others, instead, asked * SECONDS_PER_HOUR, 0.0, text)


def _rates(sizes: Candidates) -> tuple[HourlyRate, ...]:
    """Return price and speed of each allocation, the cheapest first."""
    return tuple(
        HourlyRate(
            sizes.allocation(place),
            float(sizes.usd_per_second[place]) * SECONDS_PER_HOUR,
            range_of(sizes.goodput[:, place]) if sizes.measured[place] else None,
        )
        for place in np.argsort(sizes.usd_per_second, kind="stable").tolist()
    )


class _Field:
    """All that one job may hold, over `work` examples."""

    def __init__(self, at: Ground, work: float, spot: SpotField) -> None:
        self._spot = spot
        self._at = at
        self._work = work
        everything = np.arange(len(at.candidates))
        self._alone = _courses(at, work, everything, everything, np.zeros(len(everything)))
        self._seconds = self._alone.seconds.mean(axis=0)
        self._usd = self._alone.usd.mean(axis=0)

    def corners(self) -> tuple[tuple[Prospect, ...], tuple[Prospect, ...]]:
        """The frontier by rising cost, and all else."""
        found = lower_hull(self._seconds, self._usd)
        begins = [0.0] + [
            float(
                (self._usd[dear] - self._usd[cheap]) / (self._seconds[cheap] - self._seconds[dear])
            )
            for cheap, dear in pairwise(found)
        ]
        shown: dict[int, Prospect] = {}
        for index, begin in zip(found, begins, strict=True):
            each = self.drawn(self.prospect(index, index, 0.0), is_replanned=False)
            last = next(reversed(shown.values()), None)
            if last is None or _is_onward(last, each):
                shown[index] = replace(each, from_value_of_time=begin * SECONDS_PER_HOUR)
        others = (index for index in range(len(self._seconds)) if index not in shown)
        return tuple(shown.values()), tuple(self.prospect(each, each, 0.0) for each in others)

    def best(self, value: float) -> Prospect:
        """The least of cost and waiting at a value of time, $ per second."""
        index = int(np.argmin(self._usd + value * self._seconds))
        return self.drawn(self.prospect(index, index, 0.0))

    def in_reach(self, ends: Ends, replan_seconds: float) -> str:
        """What could be kept as surely: each end by itself, and what one leaves of the other."""
        words = []
        if ends.seconds is not None:
            soonest = min(quantile(each, ends.confidence) for each in self._alone.seconds.T)
            words.append(f"the earliest finish that can be is in {duration(soonest)}")
        if ends.usd is not None:
            least = min(quantile(each, ends.confidence) for each in self._alone.usd.T)
            words.append(f"the least cost that can be is {money(least)}")
        if ends.seconds is not None and ends.usd is not None:
            in_time = plan_stages(self._at, self._work, replace(ends, usd=None), replan_seconds)
            if isinstance(in_time, Stages):
                words.append(f"in time it costs {money(in_time.usd)} on average")
            paid = plan_stages(self._at, self._work, replace(ends, seconds=None), replan_seconds)
            if isinstance(paid, Stages):
                words.append(f"within the budget it takes {duration(paid.seconds)} on average")
        return ", ".join(words)

    def prospect(self, first: int, then: int, change: float) -> Prospect:
        """A sequence: `then` after `change` examples."""
        if first == then:
            course, column = self._alone, first
        else:
            pair = np.array([first]), np.array([then]), np.array([change])
            course, column = _courses(self._at, self._work, *pair), 0
        every = self._at.candidates
        return Prospect(
            first=every.allocation(first),
            then=every.allocation(then),
            first_share=1.0 if first == then else change / self._work,
            seconds=range_of(course.seconds[:, column]),
            usd=range_of(course.usd[:, column]),
            from_value_of_time=None,
            is_measured=bool(every.measured[first] and every.measured[then]),
        )

    def drawn(self, prospect: Prospect, is_replanned: bool = True) -> Prospect:
        """The same with reclaims, and waits for capacity, in its ranges."""
        runs = self._spot.runs(prospect.first, prospect.then if is_replanned else None)
        if runs is None:
            return prospect
        return replace(prospect, seconds=range_of(runs.seconds), usd=range_of(runs.usd))


def lower_hull(seconds: FloatArray, usd: FloatArray) -> list[int]:
    """The points that are least ``usd + v * seconds`` for some v >= 0, by rising v.

    Of equals the first stands.
    """
    corners: list[int] = []
    for index in np.lexsort((seconds, usd)).tolist():
        if corners and seconds[index] >= seconds[corners[-1]]:
            continue
        while len(corners) > 1 and not _bends(seconds, usd, (*corners[-2:], index)):
            corners.pop()
        corners.append(index)
    return corners


def _is_onward(before: Prospect, after: Prospect) -> bool:
    """Whether it usually costs more and takes less."""
    is_dearer = after.usd.median >= before.usd.median
    return is_dearer and after.seconds.median < before.seconds.median


def _bends(seconds: FloatArray, usd: FloatArray, three: tuple[int, ...]) -> bool:
    """Whether the second point lies below the line from the first to the third."""
    first, second, third = three
    before = (usd[second] - usd[first]) * (seconds[first] - seconds[third])
    whole = (usd[third] - usd[first]) * (seconds[first] - seconds[second])
    return bool(before < whole)


def _courses(
    at: Ground, work: float, first: IntArray, then: IntArray, change: FloatArray
) -> _Courses:
    """Each from nothing: `first` for `change` examples, (B,), and `then` for the rest."""
    every = at.candidates
    price, per_example = every.usd_per_second, every.seconds_per_example
    entry = switches(at, None, first)
    change_over = switches(at, first, then)
    before, after = change * per_example[:, first], (work - change) * per_example[:, then]
    fixed_seconds = entry.ready_seconds + entry.pause_seconds + change_over.lost_seconds
    fixed_usd = (
        entry.boot_usd
        + entry.pause_seconds * price[first]
        + change_over.boot_usd
        + change_over.pause_seconds * price[then]
    )
    return _Courses(
        seconds=fixed_seconds + before + after,
        usd=fixed_usd + before * price[first] + after * price[then],
    )


def _only(chance: float, ends: Ends) -> str:
    return f"kept in only {percent(chance)} of draws, {percent(ends.confidence)} asked"


def _missed(found: Shortfall, ends: Ends) -> str:
    missed = []
    if found.misses_seconds and ends.seconds is not None:
        missed.append(f"a deadline in {duration(ends.seconds)}")
    if found.misses_usd and ends.usd is not None:
        missed.append(f"a budget of {money(ends.usd)}")
    words = " and ".join(missed) or "deadline and budget together"
    return f"{words} can't be kept at {percent(ends.confidence)}"
