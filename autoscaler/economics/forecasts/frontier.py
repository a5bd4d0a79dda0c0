"""Frontier of cost against time of a whole job, before any money is spent.

A whole job on one allocation has a finish and a cost in each draw. At value of time v its mean
cost is ``usd + v * seconds``, with v in $ per second. So the best allocations are corners of the
lower hull of the mean (seconds, usd). The frontier has the corners whose medians, like their
means, rise in cost and fall in time. Points between two corners are reached by holding one after
the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.objective import AfterDeadline
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.allocation.candidates import Candidates, candidates
from autoscaler.economics.choice.requirements import remaining_constraints, stages_that_keep
from autoscaler.economics.choice.stages import (
    RemainingConstraints,
    Shortfall,
    Stages,
    plan_stages,
    quantile,
)
from autoscaler.economics.choice.switching import SwitchContext, switches
from autoscaler.economics.forecasts.forecast import Range, range_of
from autoscaler.economics.forecasts.spot import SpotForecaster, spot_field
from autoscaler.economics.pricing.objectives import (
    price_range,
    value_of_time,
    value_of_time_when_late,
)
from autoscaler.economics.pricing.wording import duration, money, percent
from autoscaler.economics.supply.supply import SECONDS_PER_HOUR, IntArray, supply_of
from autoscaler.goodput.throughput import FloatArray


@dataclass(frozen=True, slots=True)
class JobForecast:
    """Forecast of a whole job on `first`, then on `then` from share `first_share` of its work.

    `seconds` are from now to its end; `usd` is its total cost. `from_value_of_time` ($/h) is the
    lowest value of time at which it is best; None: never the best. `is_measured`: step times of
    both allocations were measured.
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
    """Price of one allocation, and its useful examples a second; None: not measured yet."""

    allocation: Allocation
    usd_per_hour: float
    examples_per_second: Range | None


@dataclass(frozen=True, slots=True)
class Frontier:
    """Choices of one job with the supply to itself.

    Attributes:
        corners: the frontier, by rising cost and falling time.
        others: all other allocations.
        chosen: choice of the objective; None if the job would stop or its work is unknown.
        value_of_time: value of time of the objective without its deadline or budget, $/h.
        chance: probability of keeping deadline and budget; None if there are none.
        shortfall: reason why the objective can't be kept, and alternatives; None if it can.
        rates: prices and speeds, only where the work is unknown; all else is then empty.
    """

    corners: tuple[JobForecast, ...]
    others: tuple[JobForecast, ...]
    chosen: JobForecast | None
    value_of_time: float
    chance: float | None = None
    shortfall: str | None = None
    rates: tuple[HourlyRate, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """B allocations or sequences for all the work: seconds and US dollars of K draws, (K, B)."""

    seconds: FloatArray
    usd: FloatArray


def frontier(job: JobSnapshot, snapshot: Snapshot) -> Frontier | None:
    """Return the frontier of a job that holds nothing yet; None if no offer can run it.

    If the amount of work is unknown, only the rates of its allocations are set.
    """
    work = job.remaining_examples
    supply = supply_of(snapshot)
    at = SwitchContext(candidates(job, supply), job.switching, supply.maximum, has_run=False)
    if not len(at.candidates):
        return None
    prices = price_range(job, supply)
    value = value_of_time(job.objective, prices)
    if work is None or not np.isfinite(work):
        rates = _rates(at.candidates)
        return Frontier((), (), None, value * SECONDS_PER_HOUR, rates=rates)
    field = _PricedCandidates(at, work, spot_field(job, snapshot, value, supply.cache))
    ends = remaining_constraints(job, supply)
    corners, others = field.corners()
    if ends.seconds is None and ends.usd is None:
        chosen = field.best(value)
        return Frontier(corners, others, chosen, value * SECONDS_PER_HOUR)
    stages = stages_that_keep(ends, at, work, supply.replan_seconds)
    if isinstance(stages, Stages):
        chosen = field.drawn(field.prospect(stages.first, stages.then, stages.change_examples))
        shortfall = None
        if stages.chance < ends.confidence:
            chance = _describe_chance(stages.chance, ends)
            shortfall = f"{chance}: {field.in_reach(ends, supply.replan_seconds)}"
        return Frontier(
            corners, others, chosen, value * SECONDS_PER_HOUR, stages.chance, shortfall
        )
    shortfall_text = (
        f"{_describe_missed(stages, ends)}: {field.in_reach(ends, supply.replan_seconds)}"
    )
    after_deadline = job.objective.after_deadline
    if ends.seconds is not None and after_deadline is AfterDeadline.STOP:
        return Frontier(corners, others, None, value * SECONDS_PER_HOUR, 0.0, shortfall_text)
    value = 0.0 if ends.usd is not None else value_of_time_when_late(job.objective, prices)
    instead = field.best(value)
    if ends.usd is not None:  # the budget holds even if the deadline is missed
        stages_in_budget = stages_that_keep(
            replace(ends, seconds=None), at, work, supply.replan_seconds
        )
        if isinstance(stages_in_budget, Stages):
            instead = field.drawn(
                field.prospect(
                    stages_in_budget.first, stages_in_budget.then, stages_in_budget.change_examples
                )
            )
    return Frontier(corners, others, instead, value * SECONDS_PER_HOUR, 0.0, shortfall_text)


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


class _PricedCandidates:
    """Candidates of one job, priced over `work` useful examples."""

    def __init__(self, at: SwitchContext, work: float, spot: SpotForecaster) -> None:
        self._spot = spot
        self._at = at
        self._work = work
        everything = np.arange(len(at.candidates))
        self._alone = _runs_of_sequences(
            at, work, everything, everything, np.zeros(len(everything))
        )
        self._seconds = self._alone.seconds.mean(axis=0)
        self._usd = self._alone.usd.mean(axis=0)

    def corners(self) -> tuple[tuple[JobForecast, ...], tuple[JobForecast, ...]]:
        """Return the frontier by rising cost, and all other candidates."""
        hull_indices = lower_hull(self._seconds, self._usd)
        least_values = [0.0] + [
            float(
                (self._usd[dearer] - self._usd[cheaper])
                / (self._seconds[cheaper] - self._seconds[dearer])
            )
            for cheaper, dearer in pairwise(hull_indices)
        ]
        shown: dict[int, JobForecast] = {}
        for index, least_value in zip(hull_indices, least_values, strict=True):
            prospect = self.drawn(self.prospect(index, index, 0.0), is_replanned=False)
            last = next(reversed(shown.values()), None)
            if last is None or _is_dearer_and_faster(last, prospect):
                shown[index] = replace(prospect, from_value_of_time=least_value * SECONDS_PER_HOUR)
        others = (other for other in range(len(self._seconds)) if other not in shown)
        return tuple(shown.values()), tuple(self.prospect(index, index, 0.0) for index in others)

    def best(self, value: float) -> JobForecast:
        """Return the candidate of least cost and waiting at a value of time, $ per second."""
        index = int(np.argmin(self._usd + value * self._seconds))
        return self.drawn(self.prospect(index, index, 0.0))

    def in_reach(self, ends: RemainingConstraints, replan_seconds: float) -> str:
        """Describe what can be kept at the confidence: each end alone, and both together."""
        parts = []
        if ends.seconds is not None:
            soonest = min(quantile(sample, ends.confidence) for sample in self._alone.seconds.T)
            parts.append(f"the earliest possible finish is in {duration(soonest)}")
        if ends.usd is not None:
            least_usd = min(quantile(sample, ends.confidence) for sample in self._alone.usd.T)
            parts.append(f"the least possible cost is {money(least_usd)}")
        if ends.seconds is not None and ends.usd is not None:
            in_time = plan_stages(self._at, self._work, replace(ends, usd=None), replan_seconds)
            if isinstance(in_time, Stages):
                parts.append(f"in time it costs {money(in_time.usd)} on average")
            in_budget = plan_stages(
                self._at, self._work, replace(ends, seconds=None), replan_seconds
            )
            if isinstance(in_budget, Stages):
                parts.append(
                    f"within the budget it takes {duration(in_budget.seconds)} on average"
                )
        return ", ".join(parts)

    def prospect(self, first: int, then: int, change: float) -> JobForecast:
        """Return the forecast of `first` for `change` useful examples, followed by `then`."""
        if first == then:
            run, column = self._alone, first
        else:
            pair = np.array([first]), np.array([then]), np.array([change])
            run, column = _runs_of_sequences(self._at, self._work, *pair), 0
        found_candidates = self._at.candidates
        return JobForecast(
            first=found_candidates.allocation(first),
            then=found_candidates.allocation(then),
            first_share=1.0 if first == then else change / self._work,
            seconds=range_of(run.seconds[:, column]),
            usd=range_of(run.usd[:, column]),
            from_value_of_time=None,
            is_measured=bool(found_candidates.measured[first] and found_candidates.measured[then]),
        )

    def drawn(self, prospect: JobForecast, is_replanned: bool = True) -> JobForecast:
        """Return the prospect with reclaims and waits for capacity in its ranges."""
        runs = self._spot.runs(prospect.first, prospect.then if is_replanned else None)
        if runs is None:
            return prospect
        return replace(prospect, seconds=range_of(runs.seconds), usd=range_of(runs.usd))


def lower_hull(seconds: FloatArray, usd: FloatArray) -> list[int]:
    """Return the points of least ``usd + v * seconds`` for some v >= 0, by rising v.

    Of equal points the first is kept.
    """
    corners: list[int] = []
    for index in np.lexsort((seconds, usd)).tolist():
        if corners and seconds[index] >= seconds[corners[-1]]:
            continue
        while len(corners) > 1 and not _bends(seconds, usd, (*corners[-2:], index)):
            corners.pop()
        corners.append(index)
    return corners


def _is_dearer_and_faster(before: JobForecast, after: JobForecast) -> bool:
    """Return whether the later prospect's median costs at least as much and takes less time."""
    is_dearer = after.usd.median >= before.usd.median
    return is_dearer and after.seconds.median < before.seconds.median


def _bends(seconds: FloatArray, usd: FloatArray, three: tuple[int, ...]) -> bool:
    """Return whether the second point lies below the line from the first to the third."""
    first, second, third = three
    before = (usd[second] - usd[first]) * (seconds[first] - seconds[third])
    span = (usd[third] - usd[first]) * (seconds[first] - seconds[second])
    return bool(before < span)


def _runs_of_sequences(
    at: SwitchContext, work: float, first: IntArray, then: IntArray, change: FloatArray
) -> _Runs:
    """Return runs from nothing: `first` for `change` examples, (B,), then `then` for the rest."""
    found_candidates = at.candidates
    price, per_example = found_candidates.usd_per_second, found_candidates.seconds_per_example
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
    return _Runs(
        seconds=fixed_seconds + before + after,
        usd=fixed_usd + before * price[first] + after * price[then],
    )


def _describe_chance(chance: float, ends: RemainingConstraints) -> str:
    return f"kept in only {percent(chance)} of cases, {percent(ends.confidence)} asked"


def _describe_missed(shortfall: Shortfall, ends: RemainingConstraints) -> str:
    parts = []
    if shortfall.misses_seconds and ends.seconds is not None:
        parts.append(f"a deadline in {duration(ends.seconds)}")
    if shortfall.misses_usd and ends.usd is not None:
        parts.append(f"a budget of {money(ends.usd)}")
    ends_text = " and ".join(parts) or "deadline and budget together"
    return f"{ends_text} can't be kept at {percent(ends.confidence)}"
