"""Marginal goodput on a pool of several kinds of device: the greatest total worth.

Progress is priced as on a pool of one kind, where a device counts by its kind's relative speed. So
each kind has a price in proportion to its speed. An integer program over the configurations of Sia
assigns the devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

import numpy as np

from autoscaler.domain.allocation import Placement
from autoscaler.domain.snapshot import JobSnapshot, ThroughputModel
from autoscaler.economics.pricing.wording import duration, number
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.pools.bids import (
    ScalingCurve,
    finish_prices_of,
    horizon_of,
    kept_in_a_change,
    pauses_seconds,
    rate_of,
    value_of_progress,
    work_left,
)
from autoscaler.policies.pools.configurations import (
    ConfigurationCosts,
    MachineConfiguration,
    assign,
    configuration_of,
    configurations,
    held_in,
)
from autoscaler.policies.pools.optimism import optimistic
from autoscaler.policies.pools.pool import Pool
from autoscaler.policies.pools.projection import Projection, Size, most_measured

# Largest growth over the most devices measured. Unmeasured sizes are predicted optimistically, so
# a job grows step by step.
_GROWTH = 2
# Restarts take up to 250 s in published workloads with several kinds. So the horizon of a plan is
# longer than on a pool of one kind, and a device that adds less than this fraction of the job's
# worth on one device stays free. Both published workloads that were tried improve by these two.
_HORIZON_SECONDS = 600.0
_LEAST_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class _JobWorth:
    """Worth of devices to one job.

    Attributes:
        anew: worth of each configuration after a restart.
        staying: worth of the present placement.
        least: least worth that a device of each kind must add.
        value: price of a useful example.
        work: useful examples left.
    """

    job: JobSnapshot
    held: Placement | None
    anew: Mapping[MachineConfiguration, float]
    staying: float
    least: Mapping[str, float]
    value: float
    work: float

    def least_of(self, kind: str | None, devices: int) -> float:
        """Return the least worth of so many devices of a kind."""
        return self.least.get(kind or "", 0.0) * devices


@dataclass(frozen=True, slots=True)
class PoolAssignment:
    """Placement and reason of each job by id; `trouble` is the solver's error or None."""

    placements: Mapping[str, Placement | None]
    reasons: Mapping[str, str]
    trouble: str | None = None


def plan_kinds(jobs: Sequence[JobSnapshot], pool: Pool, now_seconds: float) -> PoolAssignment:
    """Return placements of jobs that share several kinds; each can use an available kind."""
    expected = [_JobRates(job, pool) for job in jobs]
    speeds = _relative_speeds(expected, pool)
    curves = [rates.curve(speeds, now_seconds) for rates in expected]
    available = sum(speeds[kind] * part.available for kind, part in pool.by_kind().items())
    prices = finish_prices_of(curves, np.array([available]))
    worths = [
        _job_worth(*inputs, now_seconds)
        for inputs in zip(expected, curves, prices, pauses_seconds(jobs), strict=True)
    ]
    assignment = assign([_claim(worth, pool) for worth in worths], pool)
    placements = assignment.placements
    reasons = {worth.job.id: _reason(worth, placements[worth.job.id], pool) for worth in worths}
    return PoolAssignment(placements, reasons, assignment.trouble)


class _JobRates:
    """One job's rates on the kinds it may use; without a model the rate is 1 on one device."""

    def __init__(self, job: JobSnapshot, pool: Pool) -> None:
        self._pool = pool
        self._parts = pool.for_job(job)
        self._projection = Projection(job.models, self._parts, self._optimistic_rates)
        self.job = job
        self.held = held_in(job, pool)
        self.rates = self._rates_by_configuration()

    @property
    def alone(self) -> dict[str, float]:
        """Rate on one device of each kind."""
        return {
            configuration.kind: rate
            for configuration, rate in self.rates.items()
            if configuration.total == 1
        }

    @property
    def staying(self) -> float:
        """Rate of the present placement; 0 without one."""
        if self.held is None:
            return 0.0
        kind = self._pool.kind_of(self.held) or ""
        (rate,) = self.on(kind, [(len(self.held.shares), self.held.devices)])
        return rate

    def _rates_by_configuration(self) -> dict[MachineConfiguration, float]:
        """Return the rate of every configuration in which the job runs."""
        rates_by_configuration: dict[MachineConfiguration, float] = {}
        most_machines = max(self.job.instances.maximum, 1)
        for kind in self._parts:
            usable = [
                configuration
                for configuration in configurations(self._pool)
                if configuration.kind == kind
            ]
            if kind not in self.job.models:
                usable = [configuration for configuration in usable if configuration.total == 1]
            usable = [
                configuration
                for configuration in usable
                if configuration.machines <= most_machines
            ]
            rates = self.on(
                kind,
                [(configuration.machines, configuration.total) for configuration in usable],
            )
            rates_by_configuration |= {
                configuration: rate
                for configuration, rate in zip(usable, rates, strict=True)
                if rate > 0
            }
        return rates_by_configuration

    def on(self, kind: str, sizes: Sequence[Size]) -> list[float]:
        """Return the useful examples per second at these (machines, devices) of a kind."""
        if kind not in self.job.models:
            return [1.0] * len(sizes)
        return self._projection.on(kind, sizes)

    def curve(self, speeds: Mapping[str, float], now_seconds: float) -> ScalingCurve:
        """Return the job's curve; a device counts by its kind's relative speed."""
        uses = np.array(
            [[speeds[configuration.kind] * configuration.total for configuration in self.rates]]
        )
        rate = np.array(list(self.rates.values()))
        work = work_left(self.job, min(self.alone.values(), default=0.0), now_seconds)
        measured = max((most_measured(model) for model in self.job.models.values()), default=0)
        return ScalingCurve(self.job.weight, uses, rate, work, max(measured, 1))

    def _optimistic_rates(self, model: ThroughputModel, sizes: Sequence[Size]) -> Sequence[float]:
        """Return the rates of a model that assumes no cost for unmeasured sizes."""
        machines, devices = np.array(sizes, dtype=np.int64).reshape(-1, 2).T
        optimistic_model = replace(model, point=optimistic(model))
        rates: list[float] = rate_of(optimistic_model, self.job, machines, devices).tolist()
        return rates


def _relative_speeds(expected: Sequence[_JobRates], pool: Pool) -> dict[str, float]:
    """Return each kind's speed over the mean of all kinds: the median over the jobs.

    A kind without jobs measured on all kinds has speed 1.
    """
    ratios: dict[str, list[float]] = {kind: [] for kind in pool.by_kind()}
    for rates in expected:
        alone = rates.alone
        if len(alone) == len(ratios):
            mean = fmean(alone.values())
            for kind, rate in alone.items():
                ratios[kind].append(rate / mean)
    return {
        kind: median(kind_ratios) if kind_ratios else 1.0 for kind, kind_ratios in ratios.items()
    }


def _job_worth(
    expected: _JobRates,
    curve: ScalingCurve,
    prices: FloatArray,
    pause_seconds: float,
    now_seconds: float,
) -> _JobWorth:
    """Return the worth of devices to a job; a change is charged its pause."""
    value = value_of_progress(curve, prices) if expected.rates else 0.0
    present_rate = expected.staying
    left_seconds = curve.work / present_rate if present_rate > 0 else None
    horizon_seconds = horizon_of(expected.job, now_seconds, _HORIZON_SECONDS)
    kept_share = kept_in_a_change(pause_seconds, left_seconds, horizon_seconds)
    most = _GROWTH * curve.measured_devices
    worth_of_changes = {
        configuration: kept_share * value * rate
        for configuration, rate in expected.rates.items()
        if configuration.total <= most
    }
    least = {kind: _LEAST_SHARE * value * rate for kind, rate in expected.alone.items()}
    return _JobWorth(
        expected.job,
        expected.held,
        worth_of_changes,
        value * present_rate,
        least,
        value,
        curve.work,
    )


def _claim(worth: _JobWorth, pool: Pool) -> ConfigurationCosts:
    """Return the costs of the configurations that the job could get."""
    held, kind = worth.held, pool.kind_of(worth.held)
    return ConfigurationCosts(
        job=worth.job.id,
        held=held,
        costs={
            configuration: worth.least_of(configuration.kind, configuration.total) - value
            for configuration, value in worth.anew.items()
        },
        staying_cost=worth.least_of(kind, held.devices if held else 0) - worth.staying,
        idle_cost=0.0,
    )


def _reason(job_worth: _JobWorth, placement: Placement | None, pool: Pool) -> str:
    if placement is None:
        return "every device is worth more to other jobs"
    stays = placement == job_worth.held
    worth = job_worth.staying if stays else job_worth.anew[configuration_of(placement, pool)]
    left_seconds = job_worth.work * job_worth.value / worth if worth > 0 else 0.0
    return f"{duration(left_seconds)} left, worth {number(worth)} s of waiting per second"
