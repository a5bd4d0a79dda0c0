"""Pollux without interference avoidance: distributed jobs may share machines.

Source: Qiao et al., Pollux (OSDI'21), section 5.3.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.allocation import Placement
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.pools.configurations import held_in
from autoscaler.policies.pools.optimism import speedups_over
from autoscaler.policies.pools.packing import Packing
from autoscaler.policies.pools.pool import Pool, by_submission, plan_of_placements, pool_of
from autoscaler.policies.pools.projection import most_measured
from autoscaler.policies.published.pollux import PolluxPolicy, fair_share

# Replan from the planned placements until these no longer change, at most so many times.
_PASSES = 10
# Relative reduction in cost below which placements count as no better.
_LEAST_GAIN = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class _JobCosts:
    """Term of the power mean of one job on 0, 1, 2, ... A devices of its kind, (A + 1,)."""

    job: JobSnapshot
    held: Placement | None
    costs: FloatArray

    @property
    def held_devices(self) -> int:
        """Number of devices held."""
        return self.held.devices if self.held else 0

    def cost_of(self, placement: Placement | None) -> float:
        """Return the cost of the placement's number of devices."""
        return float(self.costs[placement.devices if placement else 0])


class PolluxCrowdedPolicy(PolluxPolicy):
    """`PolluxPolicy` with any number of devices on any machines.

    The number of devices of each job is optimal. The speed-up of a job on several machines does
    not depend on which they are; such a job fills the emptiest machines. A job that fits one
    machine is placed on one, with fewer devices if necessary.
    """

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        if not any(offer.shared for offer in snapshot.offers):
            return super().plan(snapshot)
        pool = pool_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        fair = fair_share(pool, jobs)
        moved_jobs, placements = jobs, {job.id: held_in(job, pool) for job in jobs}
        for _ in range(_PASSES):
            demands = self._costs_by_kind(moved_jobs, pool, fair, snapshot.now_seconds)
            following = _improve(demands, placements, pool)
            if following == placements:
                break
            placements = following
            moved_jobs = [replace(job, placement=placements[job.id]) for job in jobs]
        placements = _undo_needless_moves(placements, jobs, pool)
        reasons = {job.id: _reason(placements[job.id], fair) for job in jobs}
        return plan_of_placements(snapshot, placements, reasons)

    def _costs_by_kind(
        self, jobs: Sequence[JobSnapshot], pool: Pool, fair: int, now_seconds: float
    ) -> dict[str, list[_JobCosts]]:
        """Return the costs of the jobs of each kind of device, in the order of submission."""
        return {
            kind: [self._job_costs(job, pool, kind, fair, now_seconds) for job in jobs_of_kind]
            for kind, jobs_of_kind in _jobs_by_kind(jobs, pool).items()
        }

    def _job_costs(
        self, job: JobSnapshot, pool: Pool, kind: str, fair: int, now_seconds: float
    ) -> _JobCosts:
        """Return the costs of one job on each number of devices of a kind."""
        part, model = pool.by_kind()[kind], job.models.get(kind)
        held = held_in(job, pool)
        held_size = (len(held.shares), held.devices) if held else (1, 1)
        parameters, machines = self._parameters, part.fewest_machines()
        growth_limit = max(parameters.growth * most_measured(model), 1)
        most = min(growth_limit, parameters.most_devices, len(machines))
        sizes = [(machines[devices - 1], devices) for devices in range(1, most + 1)]
        largest_batch = job.batch.maximum if job.batch.adaptive else job.batch.initial
        base = (1, min(fair, largest_batch))
        staying, *new_speedups = speedups_over(base, job, model, [held_size, *sizes])
        speedups = np.zeros(part.available + 1)
        speedups[1 : most + 1] = new_speedups
        factors = np.full(len(speedups), self._restart_factor(job, now_seconds))
        if held is not None:
            speedups[held.devices] = staying
            factors[held.devices] = 1.0
        discounted_speedups = factors * speedups
        costs = np.array([self._cost(float(speedup), pool) for speedup in discounted_speedups])
        return _JobCosts(job, held, costs)


def _improve(
    demands: Mapping[str, Sequence[_JobCosts]], held: Mapping[str, Placement | None], pool: Pool
) -> dict[str, Placement | None]:
    """Return the held placements, replaced on each kind where new ones cost less."""
    placements_after = dict(held)
    for kind, job_costs in demands.items():
        part = pool.by_kind()[kind]
        candidate_placements = _placements(
            job_costs, _least_cost_sizes(job_costs, part.available), part
        )
        present_cost, candidate_cost = (
            sum(demand.cost_of(placements[demand.job.id]) for demand in job_costs)
            for placements in (held, candidate_placements)
        )
        if candidate_cost < present_cost - _LEAST_GAIN * abs(present_cost):
            placements_after |= candidate_placements
    return placements_after


def _undo_needless_moves(
    planned: Mapping[str, Placement | None], jobs: Sequence[JobSnapshot], pool: Pool
) -> dict[str, Placement | None]:
    """Return the placements with jobs of unchanged size left in place, if there is room."""
    packing = Packing(pool.capacity)
    kept = dict(planned)
    for placement in planned.values():
        packing.take(placement)
    for job in jobs:
        held, given = held_in(job, pool), kept[job.id]
        if held is None or given is None or held.devices != given.devices:
            continue
        packing.give_back(given)
        kept[job.id] = held if packing.has_room(held) else given
        packing.take(kept[job.id])
    return kept


def _reason(placement: Placement | None, fair: int) -> str:
    if placement is None:
        return "every device does more for other jobs"
    return f"{placement.devices} devices where {fair} would be a fair share"


def _jobs_by_kind(jobs: Sequence[JobSnapshot], pool: Pool) -> Mapping[str, list[JobSnapshot]]:
    """Return jobs by kind: the kind held, or at first the one with the most devices per job."""
    kind_jobs: dict[str, list[JobSnapshot]] = {kind: [] for kind in pool.by_kind()}
    for job in sorted(jobs, key=lambda job: held_in(job, pool) is None):
        usable = pool.for_job(job)
        kind = pool.kind_of(held_in(job, pool)) or max(
            usable,
            key=lambda kind: (usable[kind].available / (1 + len(kind_jobs[kind])), kind),
            default=None,
        )
        if kind is not None:
            kind_jobs[kind].append(job)
    return {kind: by_submission(jobs_of_kind) for kind, jobs_of_kind in kind_jobs.items()}


def _least_cost_sizes(demands: Sequence[_JobCosts], available: int) -> list[int]:
    """Return devices of each job at the least total cost, by dynamic programming."""
    least = np.zeros(available + 1)
    given = np.arange(available + 1)
    remaining = given[:, None] - given[None, :]
    choices = []
    for demand in demands:
        totals = np.where(remaining >= 0, least[remaining] + demand.costs[None, :], np.inf)
        choices.append(totals.argmin(axis=1))
        least = totals.min(axis=1)
    sizes: list[int] = []
    for choice in reversed(choices):
        size = int(choice[available])
        sizes.append(size)
        available -= size
    return sizes[::-1]


def _placements(
    demands: Sequence[_JobCosts], sizes: Sequence[int], part: Pool
) -> dict[str, Placement | None]:
    """Return placements by job id: jobs of unchanged size stay, then the largest are first."""
    packing = Packing(part.capacity)
    placements: dict[str, Placement | None] = {demand.job.id: None for demand in demands}
    moving = []
    for demand, size in zip(demands, sizes, strict=True):
        if size == demand.held_devices and demand.held is not None:
            packing.take(demand.held)
            placements[demand.job.id] = demand.held
        elif size:
            moving.append((size, demand))
    for size, demand in sorted(moving, key=lambda entry: -entry[0]):
        placement = _fit(packing, part, size, demand.held)
        packing.take(placement)
        placements[demand.job.id] = placement
    return placements


def _fit(packing: Packing, part: Pool, size: int, held: Placement | None) -> Placement | None:
    """Return devices on one machine if any is large enough, else on the emptiest machines.

    On one machine the job gets as many of its devices as one machine has free.
    """
    if size > max(part.capacity.values()):
        return packing.emptiest(size)
    for devices in range(size, 0, -1):
        if held is not None and held.devices == devices and packing.has_room(held):
            return held
        placement = packing.fit(devices)
        if placement is not None:
            return placement
    return None
