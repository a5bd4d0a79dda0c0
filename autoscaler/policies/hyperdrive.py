"""HyperDrive: the likelier a trial reaches the target in time, the surer its devices.

Source: Rasley et al., "HyperDrive: Exploring Hyperparameters with POP Scheduling"
(Middleware'17). Followed are its classes and how they are served; docs/simulator.md has what
is not known of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.wording import percent
from autoscaler.policies.chances import Aim, chances
from autoscaler.policies.leases import lease_runs
from autoscaler.policies.pool import Grant, Pool, by_submission, gangs, plan_of, pool_of, requested


@dataclass(frozen=True, slots=True)
class HyperdriveParameters:
    """What is aimed at, and where the classes end.

    Attributes:
        aim: the target, and by when.
        poor_chance: a trial whose chance of the target is below it goes last.
        turn_seconds: how long one of those that share keeps its turn.

    Raises:
        ValueError: a chance is not from 0 to 1, or a turn has no length.
    """

    aim: Aim = Aim()  # noqa: RUF009
    poor_chance: float = 0.05
    turn_seconds: float = 600.0

    def __post_init__(self) -> None:
        if not 0 <= self.poor_chance <= 1:
            raise ValueError(f"poor_chance={self.poor_chance}: must be from 0 to 1")
        if not self.turn_seconds > 0:
            raise ValueError(f"turn_seconds={self.turn_seconds}: must be above 0")


_DEFAULTS = HyperdriveParameters()


class HyperdrivePolicy:
    """Promising trials have devices of their own, opportunistic ones take turns, poor ones wait.

    All jobs are trials; one that tells no metric yet is opportunistic. Its chance is how likely
    its curve reaches the target in the time left. A chance of p deserves p of all devices:
    promising are those above the chance at which as many devices as can be are both deserved and
    asked for. Nothing is stopped: that is its pruner's business here.
    """

    adapts_batch = False
    only_on = "pool"

    def __init__(self, parameters: HyperdriveParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        pool, jobs = pool_of(snapshot), by_submission(snapshot.jobs)
        likely = chances(snapshot, self._parameters.aim)
        promising = _promising(jobs, likely, pool)
        lease = self._parameters.turn_seconds
        ranks = {job.id: self._rank(job.id, likely, promising) for job in jobs}

        def turn(job: JobSnapshot) -> tuple[float, ...]:
            rank = ranks[job.id]
            if rank == 0:
                return rank, -likely[job.id], 0.0
            had = job.service.attained_device_seconds
            return rank, float(not lease_runs(job, snapshot, lease)), had

        queue = sorted(jobs, key=turn)
        sizes = gangs(queue, pool, pool.available)
        grants = {
            job.id: Grant(sizes[job.id], _why(job, ranks[job.id], likely, sizes, pool))
            for job in queue
        }
        return plan_of(snapshot, pool, queue, grants)

    def _rank(self, job: str, likely: Mapping[str, float], promising: frozenset[str]) -> int:
        if likely.get(job, 1.0) < self._parameters.poor_chance:
            return 2
        return 0 if job in promising else 1


def _promising(
    jobs: Sequence[JobSnapshot], likely: Mapping[str, float], pool: Pool
) -> frozenset[str]:
    """Those with devices of their own, from the likeliest on, to the nearest whole device."""
    told = sorted((job for job in jobs if job.id in likely), key=lambda job: -likely[job.id])
    asked, best, slots = 0, 0.0, 0.0
    for job in told:
        asked += requested(job, pool)
        deserved = likely[job.id] * pool.available
        if min(asked, deserved) > best:
            best = slots = min(asked, deserved)
    own, used = [], 0
    for job in told:
        used += requested(job, pool)
        if used > round(slots):
            break
        own.append(job.id)
    return frozenset(own)


def _why(
    job: JobSnapshot,
    rank: int,
    likely: Mapping[str, float],
    sizes: Mapping[str, int],
    pool: Pool,
) -> str:
    name = ("promising", "opportunistic", "poor")[rank]
    chance = f"{percent(likely[job.id])} likely" if job.id in likely else "no metric told yet"
    if sizes[job.id] > 0:
        return f"{name}, {chance}"
    return f"{name}, {chance}; {requested(job, pool)} of {pool.devices} devices not left by others"
