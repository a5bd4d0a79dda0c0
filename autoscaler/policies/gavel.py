"""Gavel: rigid jobs on several kinds of device, by shares of time and rounds of priority.

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
from autoscaler.economics.wording import number
from autoscaler.goodput.batch import goodput_table
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.gavel_shares import GavelObjective, SharedKinds, shares
from autoscaler.policies.pool import Grant, Pool, by_submission, plan_of, pool_of, requested


@dataclass(frozen=True, slots=True)
class GavelParameters:
    """What for, and in which rounds.

    Attributes:
        objective: what the shares are to be best at.
        round_seconds: how long a round is taken to be; the paper's are of six minutes. Half a
            round counts as received of each kind before the first.
        usd_per_hour: of a device, by kind, where offers have no price and `objective` is cost.

    Raises:
        ValueError: a round has no length, or a price is not above 0.
    """

    objective: GavelObjective = GavelObjective.MAX_SUM_THROUGHPUT
    round_seconds: float = 360.0
    usd_per_hour: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in {"round_seconds": self.round_seconds, **self.usd_per_hour}.items():
            if value <= 0:
                raise ValueError(f"{name}={value}: must be above 0")


class GavelPolicy:
    """Shares by a linear program, then a round: whoever is furthest behind its share goes first.

    The priority of a job on a kind of device is its share of time there over the fraction of what
    all present jobs have had there. Jobs are given what they asked for in the order of their
    priorities, and what then is left goes to those with no share of it, too. It is told the true
    throughputs, as it is in its paper.

    Where the program is not solved the shares are equal ones.
    """

    adapts_batch = False
    only_on = "pool"
    oracle = True
    objective = GavelObjective.MAX_SUM_THROUGHPUT

    def __init__(self, parameters: GavelParameters | None = None) -> None:
        self._parameters = parameters or GavelParameters(objective=self.objective)

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        pool = pool_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        if not jobs or pool.available == 0:
            return plan_of(snapshot, pool, jobs, {job.id: Grant(0, _IDLE) for job in jobs})
        kinds = list(pool.by_kind())
        problem = self._problem(jobs, pool, snapshot)
        notes: tuple[str, ...] = ()
        try:
            wanted = shares(self._parameters.objective, problem)
        except SolverError as error:
            wanted, notes = problem.equal_shares, (str(error),)
        priority = wanted / self._received(jobs, kinds)
        grants = _round(jobs, pool, wanted, priority)
        largest_first = sorted(jobs, key=lambda job: -grants[job.id].devices)
        return replace(plan_of(snapshot, pool, largest_first, grants), notes=notes)

    def _problem(self, jobs: Sequence[JobSnapshot], pool: Pool, snapshot: Snapshot) -> SharedKinds:
        parts = pool.by_kind()
        left = np.array([_steps_left(job) for job in jobs])
        return SharedKinds(
            throughput=np.array(
                [[_steps_a_second(job, kind, pool) for kind in parts] for job in jobs]
            ),
            gang=np.array([float(max(requested(job, pool), 1)) for job in jobs]),
            devices=np.array([float(part.available) for part in parts.values()]),
            usd_per_hour=self._usd_per_hour(list(parts), snapshot),
            weight=np.array([job.weight for job in jobs]),
            age_seconds=np.array([snapshot.now_seconds - job.submitted_seconds for job in jobs]),
            steps_left=left,
            steps=left * np.array([_whole_over_left(job) for job in jobs]),
        )

    def _usd_per_hour(self, kinds: Sequence[str], snapshot: Snapshot) -> FloatArray:
        """Of a device of each kind; 1 where nothing is said."""
        prices = dict.fromkeys(kinds, 1.0)
        for offer in snapshot.offers:
            if offer.shared and offer.usd_per_hour > 0:
                prices[offer.device_kind] = float(offer.usd_per_hour) / offer.devices
        prices |= self._parameters.usd_per_hour
        return np.array([prices[kind] for kind in kinds])

    def _received(self, jobs: Sequence[JobSnapshot], kinds: Sequence[str]) -> FloatArray:
        """Of the time that all these jobs have had on each kind the fraction of each: (n, k)."""
        at_first = self._parameters.round_seconds / 2
        seconds = np.array(
            [
                [
                    at_first
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
    """Gavel's most throughput for the money (section 4.2)."""

    objective = GavelObjective.COST


class GavelFinishTimeFairnessPolicy(GavelPolicy):
    """Gavel's finish-time fairness (section 4.2), after Themis (NSDI'20)."""

    objective = GavelObjective.FINISH_TIME_FAIRNESS


_IDLE = "there is no device to be had"


def _round(
    jobs: Sequence[JobSnapshot], pool: Pool, wanted: FloatArray, priority: FloatArray
) -> dict[str, Grant]:
    """Who goes on which kind: the highest priority first, then the larger share."""
    left = {kind: part.available for kind, part in pool.by_kind().items()}
    entries = [
        (-priority[turn, column], -wanted[turn, column], column, turn, kind)
        for column, kind in enumerate(left)
        for turn, job in enumerate(jobs)
        if kind in pool.for_job(job)
    ]
    grants: dict[str, Grant] = {}
    for negative, _, column, turn, kind in sorted(entries):
        job = jobs[turn]
        devices = requested(job, pool)
        if job.id not in grants and 0 < devices <= left[kind]:
            left[kind] -= devices
            share = wanted[turn, column]
            why = f"{share:.0%} of its time is to be on {kind}, priority {number(-negative)}"
            grants[job.id] = Grant(devices, why, kind)
    waits = Grant(0, "others are further behind their shares")
    return {job.id: grants.get(job.id, waits) for job in jobs}


def _steps_a_second(job: JobSnapshot, kind: str, pool: Pool) -> float:
    """Of what it asked for; where the truth is not told, by its fitted model; 0 where it can't."""
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
    if job.truth is not None:
        return max(job.truth.remaining_steps, 1.0)
    return max((job.remaining_examples or 0.0) / job.batch.initial, 1.0)


def _whole_over_left(job: JobSnapshot) -> float:
    """The useful examples of the whole run over those left."""
    if not job.remaining_examples:
        return 1.0
    return (job.progress_examples + job.remaining_examples) / job.remaining_examples
