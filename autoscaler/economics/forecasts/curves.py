"""Curves of a running job: predicted goodput against the number of instances of each offer.

The line of equal price of progress joins all points that cost as much per useful example as the
held allocation: ``G(n) = (p(n) + v) / P``, where P is the price of progress of that allocation, p
the price and v the value of time. Allocations above the line make each example cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.size_bars import BarKind, SizeBar, bar_of_bounds
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.allocation.candidates import Candidates, candidates
from autoscaler.economics.choice.demands import Demand, demand
from autoscaler.economics.choice.requirements import affordable
from autoscaler.economics.forecasts.forecast import bands_of
from autoscaler.economics.pricing.price import price_of_progress
from autoscaler.economics.supply.caches import PlanningCache
from autoscaler.economics.supply.supply import (
    FLEET_JOBS,
    SECONDS_PER_HOUR,
    BoolArray,
    Supply,
    fits,
    supply_of,
)
from autoscaler.goodput.throughput import FloatArray

# Bounds up to which a curve has a point for each number of instances; above, for a ladder of them.
_EVERY_SIZE = 64
_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Prediction for one allocation at the job's present noise scale.

    Attributes:
        allocation: the allocation; all devices are in use, except perhaps at the held one.
        goodput: useful examples a second, as plans count them: reclaims are included.
        band: 5 % and 95 % quantiles of the goodput.
        usd_per_hour: price, with refills after reclaims.
        usd_per_million: price of a million useful examples, the value of time included.
        goodput_ahead: goodput over the rest of the job, if the noise scale is expected to change.
        is_measured: whether step times of this size were measured.
        bars: what forbids the allocation now; the maximum of a limit is what other jobs leave.
    """

    allocation: Allocation
    goodput: float
    band: tuple[float, float]
    usd_per_hour: float
    usd_per_million: float
    goodput_ahead: float | None
    is_measured: bool
    bars: tuple[SizeBar, ...] = ()

    @property
    def is_available(self) -> bool:
        """Whether bounds, limits, refusals and budget permit the allocation now."""
        return not self.bars


@dataclass(frozen=True, slots=True)
class JobCurves:
    """Curves of one job, and the allocations that its next decision weighs.

    Attributes:
        points: points of each offer by rising number of instances, by offer id.
        held: point of the held allocation; None if nothing is held.
        alternative: best other allocation, a faster one if there is any; None if there is none.
        value_of_time_usd_per_hour: value of time that objective, deadline and budget stand for.
    """

    points: dict[str, tuple[CurvePoint, ...]]
    held: CurvePoint | None
    alternative: CurvePoint | None
    value_of_time_usd_per_hour: float


def job_curves(
    job: JobSnapshot, snapshot: Snapshot, cache: PlanningCache | None = None
) -> JobCurves | None:
    """Return the curves of a job; None if no offer can hold it.

    Args:
        job: the job.
        snapshot: offers, and the limits that other jobs leave.
        cache: intermediate results of earlier calls; None for new ones.
    """
    supply = supply_of_one(job, snapshot, cache)
    choice = demand(job, supply, room_of(job, supply))
    value = choice.requirement.value_of_time
    shown = _Curves(job, supply, value, _candidates_to_show(job, snapshot, supply))
    if not len(shown.candidates):
        return None
    alternative = _alternative(choice)
    return JobCurves(
        points=shown.by_offer(),
        held=shown.point_of(job.held),
        alternative=shown.point_of(alternative),
        value_of_time_usd_per_hour=value * SECONDS_PER_HOUR,
    )


def supply_of_one(
    job: JobSnapshot, snapshot: Snapshot, cache: PlanningCache | None = None
) -> Supply:
    """Return the supply for forecasts of one job; with a ladder of sizes for wide bounds."""
    fleet_jobs = FLEET_JOBS if job.instances.maximum <= _EVERY_SIZE else 0
    return supply_of(replace(snapshot, jobs=(job,)), cache, fleet_jobs)


def room_of(job: JobSnapshot, supply: Supply) -> FloatArray:
    """Return the room that the limits leave beside the job's held allocation, (R,)."""
    room: FloatArray = supply.maximum - supply.uses([job.held])
    return room


def _candidates_to_show(job: JobSnapshot, snapshot: Snapshot, supply: Supply) -> Candidates:
    """Return the candidates of a job, also those that limits and refusals don't permit now."""
    alone = replace(snapshot, limits=(), unavailable=frozenset())
    return candidates(job, supply_of_one(job, alone, supply.cache))


def _alternative(choice: Demand) -> Allocation | None:
    """Return the candidate of least expected cost besides the held one, as reasons name it."""
    options = choice.at.candidates
    is_other: BoolArray = options.allowed.copy()
    if options.held is not None:
        is_other[options.held] = False
        is_faster = is_other & (options.rate > options.rate[options.held])
        is_other = is_faster if is_faster.any() else is_other
    if not is_other.any():
        return None
    return options.allocation(int(np.argmin(np.where(is_other, choice.expected_usd, np.inf))))


class _Curves:
    """Candidates of one job, priced at a value of time in $ per second."""

    def __init__(
        self, job: JobSnapshot, supply: Supply, value_of_time: float, options: Candidates
    ) -> None:
        self.candidates = options
        self._job = job
        self._supply = supply
        self._value = value_of_time
        if not len(options):
            return
        self._goodput = 1.0 / (1.0 / options.goodput).mean(axis=0)
        self._usd_per_example = price_of_progress(
            options.usd_per_second, value_of_time, self._goodput
        )
        self._bands = bands_of(options.goodput)
        self._is_within = fits(
            supply.unit_uses[:, options.sizes.offer] * options.sizes.instances, supply.maximum
        )
        self._is_affordable = affordable(job, supply, options)

    def by_offer(self) -> dict[str, tuple[CurvePoint, ...]]:
        """Return the points with all devices in use, and the held one, by offer id."""
        options = self.candidates
        points: dict[str, list[CurvePoint]] = {}
        for index in range(len(options)):
            offer = options.offer_of(index)
            if options.sizes.devices_used[index] == offer.devices or index == options.held:
                points.setdefault(offer.id, []).append(self._point(index))
        return {
            offer_id: tuple(sorted(of_offer, key=lambda point: point.allocation.devices))
            for offer_id, of_offer in points.items()
        }

    def point_of(self, allocation: Allocation | None) -> CurvePoint | None:
        """Return the point of an allocation; None if it is no candidate."""
        index = self.candidates.index(allocation)
        if index is not None or allocation is None:
            return None if index is None else self._point(index)
        return self._point_between(allocation)

    def _point_between(self, allocation: Allocation) -> CurvePoint | None:
        """Return the point of a size that the ladder of sizes skips."""
        bounds = replace(
            self._job.instances,
            minimum=allocation.instances,
            maximum=allocation.instances,
            maxima=(),
        )
        terms = replace(self.candidates.terms, is_fleet=False)
        of_size = replace(self._job, instances=bounds)
        options = candidates(of_size, replace(self._supply, terms=terms))
        if options.index(allocation) is None:
            return None
        return _Curves(self._job, self._supply, self._value, options).point_of(allocation)

    def _point(self, index: int) -> CurvePoint:
        options = self.candidates
        low, high = self._bands[:, index]
        return CurvePoint(
            allocation=options.allocation(index),
            goodput=float(self._goodput[index]),
            band=(float(low), float(high)),
            usd_per_hour=float(options.usd_per_second[index]) * SECONDS_PER_HOUR,
            usd_per_million=float(self._usd_per_example[index]) * _MILLION,
            goodput_ahead=None if options.ahead is None else float(options.rate[index]),
            is_measured=bool(options.measured[index]),
            bars=tuple(self._bars(index)),
        )

    def _bars(self, index: int) -> Iterator[SizeBar]:
        """Yield what forbids a candidate now."""
        options, offer = self.candidates, self.candidates.offer_of(index)
        instances = int(options.sizes.instances[index])
        if not options.allowed[index]:  # a held size that is out of bounds
            bar = bar_of_bounds(self._job.instances, offer, instances)
            yield bar or SizeBar(BarKind.FIXED, place=self._job.bounds_reason or "")
        for limit, is_within in zip(self._supply.limits, self._is_within[:, index], strict=True):
            if not is_within:
                room = limit.maximum
                yield SizeBar(BarKind.LIMIT, limit.name, room, room, limit.unit, limit.place)
        held = self._job.held
        is_kept = held is not None and held.offer == offer.id and instances <= held.instances
        if offer.id in self._supply.unavailable and not is_kept:
            yield SizeBar(BarKind.REFUSED, offer.id)
        budget = self._job.objective.budget_usd
        if budget is not None and not is_kept and not self._is_affordable[index]:
            yield SizeBar(BarKind.BUDGET, maximum=float(budget))
