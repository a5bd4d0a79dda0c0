"""Marginal goodput on a pool of several kinds of device: the most worth that the pool bears.

What progress is worth comes as on a pool of one kind, where a device counts as many times as it
is fast: a price for each kind, in the ratio of their speeds. Who gets what is an integer program
over the configurations of Sia.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

import numpy as np

from autoscaler.domain.allocation import Placement
from autoscaler.domain.snapshot import JobSnapshot, ThroughputModel
from autoscaler.economics.wording import duration, number
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.configurations import (
    Claim,
    Configuration,
    assign,
    configuration_of,
    configurations,
    held_in,
)
from autoscaler.policies.optimism import optimistic
from autoscaler.policies.pool import Pool
from autoscaler.policies.pool_bids import (
    Curve,
    finish_prices_of,
    horizon_of,
    kept_in_a_change,
    pauses_seconds,
    rate_of,
    value_of_progress,
    work_left,
)
from autoscaler.policies.projection import Projection, Size, most_measured

# A job grows to no more than this many times the most devices it was measured on: what was not
# measured is hoped to scale, and proves it step by step.
_GROWTH = 2
# Restarts are dear where kinds differ (up to 250 s as published): a plan is taken to last longer
# than on a pool of one kind, and a device that adds less than this share of what the job earns on
# one is left to whoever comes next. Both published workloads that were tried gain by the two.
_HORIZON_SECONDS = 600.0
_LEAST_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class _Offered:
    """What devices are worth to one job: `anew` to be given, `staying` where it is.

    A device of each kind is to add at least `least`.
    """

    job: JobSnapshot
    held: Placement | None
    anew: Mapping[Configuration, float]
    staying: float
    least: Mapping[str, float]
    value: float
    work: float

    def least_of(self, kind: str | None, devices: int) -> float:
        """What so many devices of a kind are to be worth at least."""
        return self.least.get(kind or "", 0.0) * devices


@dataclass(frozen=True, slots=True)
class Placed:
    """Where each job is to be and why, by id; `trouble` is what the solver failed at."""

    placements: Mapping[str, Placement | None]
    reasons: Mapping[str, str]
    trouble: str | None = None


def plan_kinds(jobs: Sequence[JobSnapshot], pool: Pool, now_seconds: float) -> Placed:
    """For jobs that share machines of several kinds; each may use one of which some is there."""
    expected = [_Expected(job, pool) for job in jobs]
    speeds = _speeds(expected, pool)
    curves = [each.curve(speeds, now_seconds) for each in expected]
    available = sum(speeds[kind] * part.available for kind, part in pool.by_kind().items())
    prices = finish_prices_of(curves, np.array([available]))
    offered = [
        _offered(*each, now_seconds)
        for each in zip(expected, curves, prices, pauses_seconds(jobs), strict=True)
    ]
    assignment = assign([_claim(each, pool) for each in offered], pool)
    placements = assignment.placements
    reasons = {each.job.id: _why(each, placements[each.job.id], pool) for each in offered}
    return Placed(placements, reasons, assignment.trouble)


class _Expected:
    """One job's rates on the kinds that it may use; of one without models, 1 on one device."""

    def __init__(self, job: JobSnapshot, pool: Pool) -> None:
        self._pool = pool
        self._parts = pool.for_job(job)
        self._projection = Projection(job.models, self._parts, self._rates)
        self.job = job
        self.held = held_in(job, pool)
        self.rates = self._all_rates()

    @property
    def alone(self) -> dict[str, float]:
        """Kind -> rate on one device."""
        return {one.kind: rate for one, rate in self.rates.items() if one.total == 1}

    @property
    def staying(self) -> float:
        """The rate where it is; 0 where it holds nothing."""
        if self.held is None:
            return 0.0
        kind = self._pool.kind_of(self.held) or ""
        (rate,) = self.on(kind, [(len(self.held.shares), self.held.devices)])
        return rate

    def _all_rates(self) -> dict[Configuration, float]:
        """Of every configuration in which it would run."""
        found: dict[Configuration, float] = {}
        most_machines = max(self.job.instances.maximum, 1)
        for kind in self._parts:
            own = [one for one in configurations(self._pool) if one.kind == kind]
            if kind not in self.job.models:
                own = [one for one in own if one.total == 1]
            own = [one for one in own if one.machines <= most_machines]
            rates = self.on(kind, [(one.machines, one.total) for one in own])
            found |= {one: rate for one, rate in zip(own, rates, strict=True) if rate > 0}
        return found

    def on(self, kind: str, sizes: Sequence[Size]) -> list[float]:
        """Useful examples a second on so many (machines, devices) of a kind."""
        if kind not in self.job.models:
            return [1.0] * len(sizes)
        return self._projection.on(kind, sizes)

    def curve(self, speeds: Mapping[str, float], now_seconds: float) -> Curve:
        """As the fluid run of all jobs has it: a device counts as its kind's speed."""
        uses = np.array([[speeds[one.kind] * one.total for one in self.rates]])
        rate = np.array(list(self.rates.values()))
        work = work_left(self.job, min(self.alone.values(), default=0.0), now_seconds)
        measured = max((most_measured(model) for model in self.job.models.values()), default=0)
        return Curve(self.job.weight, uses, rate, work, max(measured, 1))

    def _rates(self, model: ThroughputModel, sizes: Sequence[Size]) -> Sequence[float]:
        machines, devices = np.array(sizes, dtype=np.int64).reshape(-1, 2).T
        hopeful = replace(model, point=optimistic(model))
        found: list[float] = rate_of(hopeful, self.job, machines, devices).tolist()
        return found


def _speeds(expected: Sequence[_Expected], pool: Pool) -> dict[str, float]:
    """How fast a device of each kind is, over the mean of all: the median of the jobs."""
    ratios: dict[str, list[float]] = {kind: [] for kind in pool.by_kind()}
    for each in expected:
        alone = each.alone
        if len(alone) == len(ratios):
            mean = fmean(alone.values())
            for kind, rate in alone.items():
                ratios[kind].append(rate / mean)
    return {kind: median(found) if found else 1.0 for kind, found in ratios.items()}


def _offered(
    expected: _Expected,
    curve: Curve,
    prices: FloatArray,
    pause_seconds: float,
    now_seconds: float,
) -> _Offered:
    """A change has its pause to pay for, and a job grows to a few times what was measured."""
    value = value_of_progress(curve, prices) if expected.rates else 0.0
    now = expected.staying
    left_seconds = curve.work / now if now > 0 else None
    horizon_seconds = horizon_of(expected.job, now_seconds, _HORIZON_SECONDS)
    kept = kept_in_a_change(pause_seconds, left_seconds, horizon_seconds)
    most = _GROWTH * curve.measured_devices
    anew = {one: kept * value * rate for one, rate in expected.rates.items() if one.total <= most}
    least = {kind: _LEAST_SHARE * value * rate for kind, rate in expected.alone.items()}
    return _Offered(expected.job, expected.held, anew, value * now, least, value, curve.work)


def _claim(each: _Offered, pool: Pool) -> Claim:
    held, kind = each.held, pool.kind_of(each.held)
    return Claim(
        job=each.job.id,
        held=held,
        costs={
            one: each.least_of(one.kind, one.total) - worth for one, worth in each.anew.items()
        },
        staying_cost=each.least_of(kind, held.devices if held else 0) - each.staying,
        idle_cost=0.0,
    )


def _why(each: _Offered, placement: Placement | None, pool: Pool) -> str:
    if placement is None:
        return "every device is worth more to others"
    stays = placement == each.held
    worth = each.staying if stays else each.anew[configuration_of(placement, pool)]
    left_seconds = each.work * each.value / worth if worth > 0 else 0.0
    return f"{duration(left_seconds)} left, worth {number(worth)} s of waiting a second"
