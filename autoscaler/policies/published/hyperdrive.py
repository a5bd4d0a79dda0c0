"""HyperDrive: devices for trials by the probability that they reach the target in time.

Source: Rasley et al., "HyperDrive: Exploring Hyperparameters with POP Scheduling" (Middleware'17).
The classes and their service follow the paper; docs/simulator.md lists its unpublished parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.pricing.wording import percent
from autoscaler.policies.pools.pool import (
    Grant,
    Pool,
    by_submission,
    gangs,
    plan_of,
    pool_of,
    requested,
)
from autoscaler.policies.published.chances import MetricTarget, chances
from autoscaler.policies.published.leases import lease_runs


@dataclass(frozen=True, slots=True)
class HyperdriveParameters:
    """Target, and the thresholds of the classes.

    Attributes:
        aim: target value of the metric, and its deadline.
        poor_chance: probability of the target below which a trial is served last.
        turn_seconds: length of the turn of a trial that shares devices.

    Raises:
        ValueError: the probability is not from 0 to 1, or a turn is not above 0.
    """

    aim: MetricTarget = MetricTarget()  # noqa: RUF009
    poor_chance: float = 0.05
    turn_seconds: float = 600.0

    def __post_init__(self) -> None:
        if not 0 <= self.poor_chance <= 1:
            raise ValueError(f"poor_chance={self.poor_chance}: must be from 0 to 1")
        if not self.turn_seconds > 0:
            raise ValueError(f"turn_seconds={self.turn_seconds}: must be above 0")


_DEFAULTS = HyperdriveParameters()


class HyperdrivePolicy:
    """Promising trials get their own devices, opportunistic ones take turns, poor ones are last.

    All jobs are trials. A trial without a reported metric is opportunistic. The probability p of a
    trial is that its curve reaches the target in the time left. A trial deserves a fraction p of
    all devices. Trials are promising above the probability at which the most devices are both
    deserved and asked for. The policy stops no trial: pruners do.
    """

    adapts_batch = False
    only_on = "pool"

    def __init__(self, parameters: HyperdriveParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        pool, jobs = pool_of(snapshot), by_submission(snapshot.jobs)
        probabilities = chances(snapshot, self._parameters.aim)
        promising = _promising_trials(jobs, probabilities, pool)
        lease = self._parameters.turn_seconds
        ranks = {job.id: self._rank(job.id, probabilities, promising) for job in jobs}

        def turn(job: JobSnapshot) -> tuple[float, ...]:
            rank = ranks[job.id]
            if rank == 0:
                return rank, -probabilities[job.id], 0.0
            attained = job.service.attained_device_seconds
            return rank, float(not lease_runs(job, snapshot, lease)), attained

        queue = sorted(jobs, key=turn)
        sizes = gangs(queue, pool, pool.available)
        grants = {
            job.id: Grant(sizes[job.id], _reason(job, ranks[job.id], probabilities, sizes, pool))
            for job in queue
        }
        return plan_of(snapshot, pool, queue, grants)

    def _rank(
        self, job: str, probabilities: Mapping[str, float], promising: frozenset[str]
    ) -> int:
        """Return 0 for a promising trial, 1 for an opportunistic one, 2 for a poor one."""
        if probabilities.get(job, 1.0) < self._parameters.poor_chance:
            return 2
        return 0 if job in promising else 1


def _promising_trials(
    jobs: Sequence[JobSnapshot], probabilities: Mapping[str, float], pool: Pool
) -> frozenset[str]:
    """Return the ids of the trials with devices of their own, most probable first.

    The deserved number of devices is rounded to the nearest whole device.
    """
    reporting = sorted(
        (job for job in jobs if job.id in probabilities), key=lambda job: -probabilities[job.id]
    )
    cumulative_devices, most_devices, promising_devices = 0, 0.0, 0.0
    for job in reporting:
        cumulative_devices += requested(job, pool)
        deserved = probabilities[job.id] * pool.available
        if min(cumulative_devices, deserved) > most_devices:
            most_devices = promising_devices = min(cumulative_devices, deserved)
    promising, used = [], 0
    for job in reporting:
        used += requested(job, pool)
        if used > round(promising_devices):
            break
        promising.append(job.id)
    return frozenset(promising)


def _reason(
    job: JobSnapshot,
    rank: int,
    probabilities: Mapping[str, float],
    sizes: Mapping[str, int],
    pool: Pool,
) -> str:
    name = ("promising", "opportunistic", "poor")[rank]
    chance = (
        f"{percent(probabilities[job.id])} likely"
        if job.id in probabilities
        else "no metric reported yet"
    )
    if sizes[job.id] > 0:
        return f"{name}, {chance}"
    return f"{name}, {chance}; {requested(job, pool)} of {pool.devices} devices go to other trials"
