"""Gavel: rigid jobs on several kinds of device, by shares of time and rounds by priority.

Source: Narayanan et al., Gavel (OSDI'20), sections 4 and 5; order and ties of a round as in its
port in the simulator of Sia (SOSP'23).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autoscaler.domain.errors import SolverError
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.pricing.wording import number
from autoscaler.goodput.batch_search import goodput_table
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.pools.pool import Grant, Pool, by_submission, plan_of, pool_of, requested
from autoscaler.policies.published.gavel_shares import GavelObjective, SharedKinds, shares


@dataclass(frozen=True, slots=True)
class GavelParameters:
    """Objective and rounds.

    Attributes:
        objective: objective of the linear program for the shares.
        round_seconds: length of a round; the paper's last six minutes. Every job starts with half
            a round of credited time on each kind.
        usd_per_hour: price of a device by kind, where offers have none and `objective` is cost.

    Raises:
        ValueError: a round or a price is not above 0.
    """

    objective: GavelObjective = GavelObjective.MAX_SUM_THROUGHPUT
    round_seconds: float = 360.0
    usd_per_hour: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in {"round_seconds": self.round_seconds, **self.usd_per_hour}.items():
            if value <= 0:
                raise ValueError(f"{name}={value}: must be above 0")


class GavelPolicy:
    """Shares of time by a linear program; each round runs the jobs furthest below their shares.

    The priority of a job on a kind of device is its share of time there over its fraction of all
    time that present jobs had there. Jobs get the devices they asked for in the order of their
    priorities; jobs without a share get the devices left. As in the paper, the policy reads the
    true throughputs.

    If the solver fails, all shares are equal.
    """

    adapts_batch = False
    only_on = "pool"
    oracle = True
    objective = GavelObjective.MAX_SUM_THROUGHPUT

    def __init__(self, parameters: GavelParameters | None = None) -> None:
        self._parameters = parameters or GavelParameters(objective=self.objective)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        pool = pool_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        if not jobs or pool.available == 0:
            return plan_of(
                snapshot, pool, jobs, {job.id: Grant(0, _NO_DEVICE_REASON) for job in jobs}
            )
        kinds = list(pool.by_kind())
        problem = self._problem(jobs, pool, snapshot)
        notes: tuple[str, ...] = ()
        try:
            time_shares = shares(self._parameters.objective, problem)
        except SolverError as error:
            time_shares, notes = problem.equal_shares, (str(error),)
        priority = time_shares / self._received_fractions(jobs, kinds)
        grants = _grants_of_round(jobs, pool, time_shares, priority)
        largest_first = sorted(jobs, key=lambda job: -grants[job.id].devices)
        return replace(plan_of(snapshot, pool, largest_first, grants), notes=notes)

    def _problem(self, jobs: Sequence[JobSnapshot], pool: Pool, snapshot: Snapshot) -> SharedKinds:
        """Return the inputs of the linear program for these jobs."""
        parts = pool.by_kind()
        steps_left = np.array([_steps_left(job) for job in jobs])
        return SharedKinds(
            throughput=np.array(
                [[_steps_per_second(job, kind, pool) for kind in parts] for job in jobs]
            ),
            gang=np.array([float(max(requested(job, pool), 1)) for job in jobs]),
            devices=np.array([float(part.available) for part in parts.values()]),
            usd_per_hour=self._usd_per_hour(list(parts), snapshot),
            weight=np.array([job.weight for job in jobs]),
            age_seconds=np.array([snapshot.now_seconds - job.submitted_seconds for job in jobs]),
            steps_left=steps_left,
            steps=steps_left * np.array([_whole_run_over_left(job) for job in jobs]),
        )

    def _usd_per_hour(self, kinds: Sequence[str], snapshot: Snapshot) -> FloatArray:
        """Return the price of a device of each kind, (k,); 1 where none is known."""
        prices = dict.fromkeys(kinds, 1.0)
        for offer in snapshot.offers:
            if offer.shared and offer.usd_per_hour > 0:
                prices[offer.device_kind] = float(offer.usd_per_hour) / offer.devices
        prices |= self._parameters.usd_per_hour
        return np.array([prices[kind] for kind in kinds])

    def _received_fractions(self, jobs: Sequence[JobSnapshot], kinds: Sequence[str]) -> FloatArray:
        """Return each job's fraction of the time that all these jobs had on each kind, (n, k)."""
        credited_seconds = self._parameters.round_seconds / 2
        seconds = np.array(
            [
                [
                    credited_seconds
                    + job.service.kind_device_seconds.get(kind, 0.0)
                    / max(job.requested_devices or 1, 1)
                    for kind in kinds
                ]
                for job in jobs
            ]
        )
        fractions: FloatArray = seconds / seconds.sum(axis=0)
        return fractions


class GavelMaxMinPolicy(GavelPolicy):
    """Gavel's max-min fairness (section 4.1): the least throughput over that of an equal share."""

    objective = GavelObjective.MAX_MIN


class GavelMakespanPolicy(GavelPolicy):
    """Gavel's least makespan (section 4.2)."""

    objective = GavelObjective.MAKESPAN


class GavelCostPolicy(GavelPolicy):
    """Gavel's most throughput per dollar (section 4.2)."""

    objective = GavelObjective.COST


class GavelFinishTimeFairnessPolicy(GavelPolicy):
    """Gavel's finish-time fairness (section 4.2), after Themis (NSDI'20)."""

    objective = GavelObjective.FINISH_TIME_FAIRNESS


_NO_DEVICE_REASON = "no device is available"


def _grants_of_round(
    jobs: Sequence[JobSnapshot], pool: Pool, time_shares: FloatArray, priority: FloatArray
) -> dict[str, Grant]:
    """Return grants by job id: the highest priority first, then the larger share."""
    free = {kind: part.available for kind, part in pool.by_kind().items()}
    entries = [
        (-priority[index, column], -time_shares[index, column], column, index, kind)
        for column, kind in enumerate(free)
        for index, job in enumerate(jobs)
        if kind in pool.for_job(job)
    ]
    grants: dict[str, Grant] = {}
    for negative, _, column, index, kind in sorted(entries):
        job = jobs[index]
        devices = requested(job, pool)
        if job.id not in grants and 0 < devices <= free[kind]:
            free[kind] -= devices
            share = time_shares[index, column]
            reason = f"{share:.0%} of its time is to be on {kind}, priority {number(-negative)}"
            grants[job.id] = Grant(devices, reason, kind)
    waiting = Grant(0, "other jobs are further below their shares")
    return {job.id: grants.get(job.id, waiting) for job in jobs}


def _steps_per_second(job: JobSnapshot, kind: str, pool: Pool) -> float:
    """Return the steps per second on the devices asked for; 0 where they do not fit.

    The truth gives it where known, else the fitted model, else it is 1.
    """
    part, devices = pool.for_job(job).get(kind), requested(job, pool)
    if part is None or not 0 < devices <= part.available:
        return 0.0
    seconds = job.truth.step_seconds_on(kind).get(devices) if job.truth else None
    if seconds is not None:
        return 1.0 / seconds
    model = job.models.get(kind)
    rigid = replace(job.batch.on(kind), adaptive=False)
    if model is None or devices > rigid.initial:
        return 1.0
    point, machines = predictor_of((model.point,)), part.fewest_machines()[devices - 1]
    ((rate,),) = goodput_table(point, 0.0, rigid, [machines], [devices])
    return float(rate) / rigid.initial


def _steps_left(job: JobSnapshot) -> float:
    """Return the true steps left, else the predicted ones at the initial batch, at least 1."""
    if job.truth is not None:
        return max(job.truth.remaining_steps, 1.0)
    return max((job.remaining_examples or 0.0) / job.batch.initial, 1.0)


def _whole_run_over_left(job: JobSnapshot) -> float:
    """Return the useful examples of the whole run over those left."""
    if not job.remaining_examples:
        return 1.0
    return (job.progress_examples + job.remaining_examples) / job.remaining_examples
