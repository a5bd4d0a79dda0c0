"""HyperDrive: the likelier a trial reaches the target in time, the surer its devices.

Source: Rasley et al., "HyperDrive: Exploring Hyperparameters with POP Scheduling"
(Middleware'17). Followed are its classes and how they are served; docs/simulator.md has what
is not known of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.studies.curves import Curve, Study, forecast
from autoscaler.economics.wording import percent
from autoscaler.policies.leases import lease_runs
from autoscaler.policies.pool import Grant, Pool, by_submission, gangs, plan_of, pool_of, requested

_HORIZONS = 6
_DRAWS = 64


@dataclass(frozen=True, slots=True)
class HyperdriveParameters:
    """What is aimed at, by when, and where the classes end.

    Attributes:
        target: the value of the metric to be reached; None: better than any reported so far.
        maximize: whether more of the metric is better.
        within_seconds: from the first submission; None: by the end of each trial's training.
        poor_chance: a trial whose chance of the target is below it goes last.
        turn_seconds: how long one of those that share keeps its turn.

    Raises:
        ValueError: a chance is not from 0 to 1, or a time is not above 0.
    """

    target: float | None = None
    maximize: bool = True
    within_seconds: float | None = None
    poor_chance: float = 0.05
    turn_seconds: float = 600.0

    def __post_init__(self) -> None:
        if not 0 <= self.poor_chance <= 1:
            raise ValueError(f"poor_chance={self.poor_chance}: must be from 0 to 1")
        for name in ("within_seconds", "turn_seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name}={value}: must be above 0")


_DEFAULTS = HyperdriveParameters()


class HyperdrivePolicy:
    """Promising trials have devices of their own, opportunistic ones take turns, poor ones wait.

    All jobs are trials of one study; one that tells no metric yet is opportunistic. Its chance is
    how likely its curve reaches the target in the time left. A chance of p deserves p of all
    devices: promising are those above the chance at which as many devices as can be are both
    deserved and asked for. Nothing is stopped: that is its pruner's business here.
    """

    adapts_batch = False
    only_on = "pool"

    def __init__(self, parameters: HyperdriveParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        pool, jobs = pool_of(snapshot), by_submission(snapshot.jobs)
        chances = self._chances(jobs, snapshot)
        promising = _promising(jobs, chances, pool)
        lease = self._parameters.turn_seconds
        ranks = {job.id: self._rank(job.id, chances, promising) for job in jobs}

        def turn(job: JobSnapshot) -> tuple[float, ...]:
            rank = ranks[job.id]
            if rank == 0:
                return rank, -chances[job.id], 0.0
            had = job.service.attained_device_seconds
            return rank, float(not lease_runs(job, snapshot, lease)), had

        queue = sorted(jobs, key=turn)
        sizes = gangs(queue, pool, pool.available)
        grants = {
            job.id: Grant(sizes[job.id], _why(job, ranks[job.id], chances, sizes, pool))
            for job in queue
        }
        return plan_of(snapshot, pool, queue, grants)

    def _rank(self, job: str, chances: Mapping[str, float], promising: frozenset[str]) -> int:
        if chances.get(job, 1.0) < self._parameters.poor_chance:
            return 2
        return 0 if job in promising else 1

    def _chances(self, jobs: Sequence[JobSnapshot], snapshot: Snapshot) -> dict[str, float]:
        """Of the jobs that tell a metric: how likely they reach the target in time."""
        told = [job for job in jobs if job.quality]
        if not told:
            return {}
        curves = [
            Curve([q.progress_examples for q in job.quality], [q.metric for q in job.quality])
            for job in told
        ]
        ends = [self._reach(job, snapshot, jobs) for job in told]
        horizons = np.stack(
            [
                np.linspace(curve.progress[-1], max(end, curve.progress[-1]), _HORIZONS + 1)[1:]
                for curve, end in zip(curves, ends, strict=True)
            ]
        )
        study = Study(curves, self._parameters.maximize)
        found = forecast(study, range(len(told)), horizons, _DRAWS)
        sign = 1.0 if self._parameters.maximize else -1.0
        target = self._parameters.target
        values = np.concatenate([curve.finite[1] for curve in curves])
        if target is None:
            target = sign * float((sign * values).max(initial=-np.inf))
        best = np.nan_to_num(sign * found.draws, nan=-np.inf).max(axis=2)
        best = np.maximum(best, _best_so_far(curves, sign)[:, None])
        likely = (
            (best >= sign * target)
            if self._parameters.target is not None
            else (best > sign * target)
        )
        return {job.id: float(row.mean()) for job, row in zip(told, likely, strict=True)}

    def _reach(self, job: JobSnapshot, snapshot: Snapshot, jobs: Sequence[JobSnapshot]) -> float:
        """Progress that the job comes to in the time left, at the pace that it has had."""
        done = job.progress_examples
        end = np.inf if job.remaining_examples is None else done + job.remaining_examples
        within = self._parameters.within_seconds
        ran = job.service.attained_device_seconds / max(job.requested_devices or 1, 1)
        if within is None or ran <= 0:
            return float(end) if np.isfinite(end) else 2.0 * max(done, 1.0)
        first = min(each.submitted_seconds for each in jobs)
        left = max(first + within - snapshot.now_seconds, 0.0)
        return float(min(end, done + done / ran * left))


def _best_so_far(curves: Sequence[Curve], sign: float) -> np.ndarray:
    return np.array([(sign * curve.finite[1]).max(initial=-np.inf) for curve in curves])


def _promising(
    jobs: Sequence[JobSnapshot], chances: Mapping[str, float], pool: Pool
) -> frozenset[str]:
    """Those with devices of their own, from the likeliest on, to the nearest whole device."""
    likely = sorted((job for job in jobs if job.id in chances), key=lambda j: -chances[j.id])
    asked, best, slots = 0, 0.0, 0.0
    for job in likely:
        asked += requested(job, pool)
        deserved = chances[job.id] * pool.available
        if min(asked, deserved) > best:
            best = slots = min(asked, deserved)
    own, used = [], 0
    for job in likely:
        used += requested(job, pool)
        if used > round(slots):
            break
        own.append(job.id)
    return frozenset(own)


def _why(
    job: JobSnapshot,
    rank: int,
    chances: Mapping[str, float],
    sizes: Mapping[str, int],
    pool: Pool,
) -> str:
    name = ("promising", "opportunistic", "poor")[rank]
    chance = f"{percent(chances[job.id])} likely" if job.id in chances else "no metric told yet"
    if sizes[job.id] > 0:
        return f"{name}, {chance}"
    return f"{name}, {chance}; {requested(job, pool)} of {pool.devices} devices not left by others"
