"""Sia: goodput on pools of several kinds of device. Elastic jobs with adaptive batches.

Source: Jayaram Subramanya et al., Sia (SOSP'23), sections 3.2 to 3.4; constants as in its
evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.domain.allocation import Placement
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.pricing.wording import number
from autoscaler.policies.pools.bids import pauses_seconds
from autoscaler.policies.pools.configurations import (
    ConfigurationCosts,
    MachineConfiguration,
    assign,
    configuration_of,
    configurations,
    held_in,
)
from autoscaler.policies.pools.optimism import goodputs
from autoscaler.policies.pools.pool import Pool, by_submission, plan_of_placements, pool_of
from autoscaler.policies.pools.projection import Projection, Size, most_measured
from autoscaler.policies.published.restarts import LEAST_FACTOR, restart_factor


@dataclass(frozen=True, slots=True)
class SiaParameters:
    """Fairness, penalty for idle jobs, and growth.

    Attributes:
        power: p to which normalised goodputs are raised; lower is fairer. The paper's evaluation
            uses -0.5 and finds little difference from there to 1.
        idle_penalty: lambda, cost of a job without devices, in units of its least goodput.
        growth: largest number of devices, over the most that the job was measured on.
        most_devices: most devices of one job.

    Raises:
        ValueError: power is 0 or above 1, or another parameter is not above 0.
    """

    power: float = -0.5
    idle_penalty: float = 1.1
    growth: int = 2
    most_devices: int = 64

    def __post_init__(self) -> None:
        if self.power == 0 or self.power > 1:
            raise ValueError(f"power={self.power}: must be below 0, or above it and at most 1")
        for name in ("idle_penalty", "growth", "most_devices"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be above 0")


_DEFAULTS = SiaParameters()


@dataclass(frozen=True, slots=True)
class _Row:
    """One job's row of the goodput matrix, normalised by its least goodput.

    Attributes:
        anew: goodput of each possible configuration.
        staying: goodput of the present placement; 0 without one.
        factor: discount of `anew` for a restart.
    """

    job: JobSnapshot
    anew: Mapping[MachineConfiguration, float]
    staying: float
    factor: float


class SiaPolicy:
    """Greatest normalised goodput, to a power, over jobs, kinds of device and configurations.

    The least goodput of each job is 1. A change of placement multiplies the others by ``max(age -
    restarts * s, 0) / (age + s)``, s the seconds of a restart. These seconds are the measured
    pauses of the job, at least the median of all jobs; the published simulator has a constant for
    each application instead. A job starts on one device and grows to at most twice the devices
    that it was measured on.

    On a kind measured on one device only, scaling is that of the kind on which the job was
    measured on the most devices: ``thr_A(N) = thr_A(1) / thr_B(1) * thr_B(N)``. Without such a
    kind, jobs are assumed to scale perfectly.
    """

    only_on = "pool"

    def __init__(self, parameters: SiaParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        pool = pool_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        pauses = pauses_seconds(jobs)
        rows = [
            self._row(job, pool, _restart_factor(job, snapshot.now_seconds, pause))
            for job, pause in zip(jobs, pauses, strict=True)
        ]
        assignment = assign([self._claim(row, pool) for row in rows], pool)
        placements = assignment.placements
        reasons = {row.job.id: _reason(row, placements[row.job.id], pool) for row in rows}
        plan = plan_of_placements(snapshot, placements, reasons)
        return plan if assignment.trouble is None else replace(plan, notes=(assignment.trouble,))

    def _row(self, job: JobSnapshot, pool: Pool, factor: float) -> _Row:
        """Return the job's normalised goodputs."""
        speeds = _speeds(job, pool, self._most_devices(job))
        held = held_in(job, pool)
        present_goodput = 0.0
        if held is not None:
            kind = pool.kind_of(held) or ""
            (present_goodput,) = _goodputs(job, pool, kind, [(len(held.shares), held.devices)])
        least = min(
            (speed for speed in (present_goodput, *speeds.values()) if speed > 0), default=1.0
        )
        normalised = {
            configuration: speed / least for configuration, speed in speeds.items() if speed > 0
        }
        return _Row(job, normalised, present_goodput / least, factor if held is not None else 1.0)

    def _most_devices(self, job: JobSnapshot) -> int:
        """Return the most devices of the job; one for a job that has not run yet."""
        if job.service.started_seconds is None:
            return job.placement.devices if job.placement else 1
        measured = max((most_measured(model) for model in job.models.values()), default=0)
        return min(max(self._parameters.growth * measured, 1), self._parameters.most_devices)

    def _claim(self, row: _Row, pool: Pool) -> ConfigurationCosts:
        """Return the costs of the configurations that the job could get."""
        return ConfigurationCosts(
            job=row.job.id,
            held=held_in(row.job, pool),
            costs={
                configuration: self._cost(row.factor * value)
                for configuration, value in row.anew.items()
            },
            staying_cost=self._cost(row.staying),
            idle_cost=self._parameters.idle_penalty,
        )

    def _cost(self, value: float) -> float:
        """Return the job's term of the objective; the least sum is the greatest mean."""
        power = self._parameters.power
        return math.copysign(max(value, LEAST_FACTOR) ** power, -power)


def _speeds(job: JobSnapshot, pool: Pool, most: int) -> dict[MachineConfiguration, float]:
    """Return useful examples per second in every configuration of up to `most` devices."""
    speeds: dict[MachineConfiguration, float] = {}
    for kind in pool.for_job(job):
        allowed = [
            configuration
            for configuration in configurations(pool)
            if configuration.kind == kind and configuration.total <= most
        ]
        sizes = [(configuration.machines, configuration.total) for configuration in allowed]
        speeds |= dict(zip(allowed, _goodputs(job, pool, kind, sizes), strict=True))
    return speeds


def _goodputs(job: JobSnapshot, pool: Pool, kind: str, sizes: Sequence[Size]) -> list[float]:
    """Return useful examples per second on a kind; the number of devices without any model."""
    if kind not in job.models:
        return goodputs(job, None, sizes)
    parts = pool.for_job(job)
    projection = Projection(
        job.models, parts, lambda model, model_sizes: goodputs(job, model, model_sizes)
    )
    return projection.on(kind, sizes)


def _restart_factor(job: JobSnapshot, now_seconds: float, pause_seconds: float) -> float:
    """Return the discount on goodput after a restart; 1 while the job is younger than a pause."""
    if max(now_seconds - job.submitted_seconds, 0.0) < pause_seconds:
        return 1.0
    return max(restart_factor(job, now_seconds, pause_seconds), LEAST_FACTOR)


def _reason(row: _Row, placement: Placement | None, pool: Pool) -> str:
    if placement is None:
        return "every device does more for other jobs"
    stays = placement == row.job.placement
    value = row.staying if stays else row.anew[configuration_of(placement, pool)]
    return f"{number(value)} times the goodput of its least configuration"
