"""Sia: goodput on pools of several kinds of device. Elastic jobs that adapt their batch.

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
from autoscaler.economics.wording import number
from autoscaler.policies.configurations import (
    Claim,
    Configuration,
    assign,
    configuration_of,
    configurations,
    held_in,
)
from autoscaler.policies.optimism import goodputs
from autoscaler.policies.pool import Pool, by_submission, plan_of_placements, pool_of
from autoscaler.policies.pool_bids import pauses_seconds
from autoscaler.policies.projection import Projection, Size, most_measured
from autoscaler.policies.restarts import LEAST_FACTOR, restart_factor


@dataclass(frozen=True, slots=True)
class SiaParameters:
    """How fair, how eager, how far.

    Attributes:
        power: p to which normalised goodputs are raised; the lower, the fairer. The paper's
            evaluation uses -0.5, and finds little difference from there to 1.
        idle_penalty: lambda, what a job without devices costs, in those of its least goodput.
        growth: a job may have so many times the most devices that it was measured on.
        most_devices: of any one job.

    Raises:
        ValueError: power is 0 or above 1, or another of them is not above 0.
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
    """One job's row of the matrix: goodputs over its least one.

    `anew` is of each configuration that it could be given, `staying` of what it holds, and
    `factor` is what a change takes off.
    """

    job: JobSnapshot
    anew: Mapping[Configuration, float]
    staying: float
    factor: float


class SiaPolicy:
    """The most normalised goodput, to a power, over jobs, kinds of device and configurations.

    Of each job's goodputs the least is 1. A change of placement multiplies the others by
    ``max(age - restarts * s, 0) / (age + s)``, s the seconds of a restart. These are what changes
    of the job have been measured to take, and no less than is usual among the jobs; the simulator
    published with the paper has a constant for each application instead. A job starts on one
    device and grows to at most twice the devices that it was measured on.

    What more devices of a kind would do that was measured on one only is as on the kind on which
    the job was measured on most: ``thr_A(N) = thr_A(1) / thr_B(1) * thr_B(N)``. Before that, jobs
    are taken to scale perfectly.
    """

    only_on = "pool"

    def __init__(self, parameters: SiaParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        pool = pool_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        pauses = pauses_seconds(jobs)
        rows = [
            self._row(job, pool, _restart_factor(job, snapshot.now_seconds, pause))
            for job, pause in zip(jobs, pauses, strict=True)
        ]
        assignment = assign([self._claim(row, pool) for row in rows], pool)
        placements = assignment.placements
        reasons = {row.job.id: _why(row, placements[row.job.id], pool) for row in rows}
        plan = plan_of_placements(snapshot, placements, reasons)
        return plan if assignment.trouble is None else replace(plan, notes=(assignment.trouble,))

    def _row(self, job: JobSnapshot, pool: Pool, factor: float) -> _Row:
        speeds = _speeds(job, pool, self._most_devices(job))
        held = held_in(job, pool)
        now = 0.0
        if held is not None:
            kind = pool.kind_of(held) or ""
            (now,) = _goodputs(job, pool, kind, [(len(held.shares), held.devices)])
        least = min((speed for speed in (now, *speeds.values()) if speed > 0), default=1.0)
        anew = {one: speed / least for one, speed in speeds.items() if speed > 0}
        return _Row(job, anew, now / least, factor if held is not None else 1.0)

    def _most_devices(self, job: JobSnapshot) -> int:
        """A job that has not run yet starts on one device."""
        if job.service.started_seconds is None:
            return job.placement.devices if job.placement else 1
        known = max((most_measured(model) for model in job.models.values()), default=0)
        return min(max(self._parameters.growth * known, 1), self._parameters.most_devices)

    def _claim(self, row: _Row, pool: Pool) -> Claim:
        return Claim(
            job=row.job.id,
            held=held_in(row.job, pool),
            costs={one: self._cost(row.factor * value) for one, value in row.anew.items()},
            staying_cost=self._cost(row.staying),
            idle_cost=self._parameters.idle_penalty,
        )

    def _cost(self, value: float) -> float:
        power = self._parameters.power
        return math.copysign(max(value, LEAST_FACTOR) ** power, -power)


def _speeds(job: JobSnapshot, pool: Pool, most: int) -> dict[Configuration, float]:
    """Useful examples a second in every configuration up to so many devices."""
    found: dict[Configuration, float] = {}
    for kind in pool.for_job(job):
        allowed = [one for one in configurations(pool) if one.kind == kind and one.total <= most]
        sizes = [(one.machines, one.total) for one in allowed]
        found |= dict(zip(allowed, _goodputs(job, pool, kind, sizes), strict=True))
    return found


def _goodputs(job: JobSnapshot, pool: Pool, kind: str, sizes: Sequence[Size]) -> list[float]:
    """On a kind; of a job of which nothing is known as many as its devices."""
    if kind not in job.models:
        return goodputs(job, None, sizes)
    parts = pool.for_job(job)
    projection = Projection(job.models, parts, lambda model, at: goodputs(job, model, at))
    return projection.on(kind, sizes)


def _restart_factor(job: JobSnapshot, now_seconds: float, pause_seconds: float) -> float:
    """What goodput is worth to a job that has to restart for it; a young one bears one restart."""
    if max(now_seconds - job.submitted_seconds, 0.0) < pause_seconds:
        return 1.0
    return max(restart_factor(job, now_seconds, pause_seconds), LEAST_FACTOR)


def _why(row: _Row, placement: Placement | None, pool: Pool) -> str:
    if placement is None:
        return "every device does more for others"
    stays = placement == row.job.placement
    value = row.staying if stays else row.anew[configuration_of(placement, pool)]
    return f"{number(value)} times the goodput of its least configuration"
