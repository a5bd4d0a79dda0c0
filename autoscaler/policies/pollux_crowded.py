"""Pollux that does not keep distributed jobs apart: what its avoidance of interference is worth.

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
from autoscaler.policies.configurations import held_in
from autoscaler.policies.optimism import speedups_over
from autoscaler.policies.packing import Packing
from autoscaler.policies.pollux import PolluxPolicy, fair_share
from autoscaler.policies.pool import Pool, by_submission, plan_of_placements, pool_of
from autoscaler.policies.projection import most_measured

# A plan is made again from where it leads, until that is where it leads.
_PASSES = 10
# What is better by a smaller share is not better.
_LEAST_GAIN = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class _Wish:
    """What 0, 1, 2, ... devices of its kind cost a job of the power mean, (A + 1,)."""

    job: JobSnapshot
    held: Placement | None
    costs: FloatArray

    @property
    def held_devices(self) -> int:
        return self.held.devices if self.held else 0

    def cost_of(self, placement: Placement | None) -> float:
        return float(self.costs[placement.devices if placement else 0])


class PolluxCrowdedPolicy(PolluxPolicy):
    """As `PolluxPolicy`, but any number of devices on any machines will do.

    How many each job gets is found exactly. On which does not matter to the speed-up of a job on
    several machines, so a search leaves that to chance; here such a job fills the emptiest
    machines. What one machine can hold is on one, or is less.
    """

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        if not any(offer.shared for offer in snapshot.offers):
            return super().plan(snapshot)
        pool = pool_of(snapshot)
        jobs = by_submission(snapshot.jobs)
        fair = fair_share(pool, jobs)
        moved, found = jobs, {job.id: held_in(job, pool) for job in jobs}
        for _ in range(_PASSES):
            wishes = self._wishes(moved, pool, fair, snapshot.now_seconds)
            following = _following(wishes, found, pool)
            if following == found:
                break
            found = following
            moved = [replace(job, placement=found[job.id]) for job in jobs]
        found = _in_place(found, jobs, pool)
        reasons = {job.id: _why(found[job.id], fair) for job in jobs}
        return plan_of_placements(snapshot, found, reasons)

    def _wishes(
        self, jobs: Sequence[JobSnapshot], pool: Pool, fair: int, now_seconds: float
    ) -> dict[str, list[_Wish]]:
        """Of the jobs of each kind of device, first come, first."""
        return {
            kind: [self._wish(job, pool, kind, fair, now_seconds) for job in own]
            for kind, own in _by_kind(jobs, pool).items()
        }

    def _wish(
        self, job: JobSnapshot, pool: Pool, kind: str, fair: int, now_seconds: float
    ) -> _Wish:
        part, model = pool.by_kind()[kind], job.models.get(kind)
        held = held_in(job, pool)
        held_size = (len(held.shares), held.devices) if held else (1, 1)
        parameters, machines = self._parameters, part.fewest_machines()
        grown = max(parameters.growth * most_measured(model), 1)
        most = min(grown, parameters.most_devices, len(machines))
        sizes = [(machines[devices - 1], devices) for devices in range(1, most + 1)]
        largest_batch = job.batch.maximum if job.batch.adaptive else job.batch.initial
        base = (1, min(fair, largest_batch))
        staying, *anew = speedups_over(base, job, model, [held_size, *sizes])
        speedups = np.zeros(part.available + 1)
        speedups[1 : most + 1] = anew
        factors = np.full(len(speedups), self._restart_factor(job, now_seconds))
        if held is not None:
            speedups[held.devices] = staying
            factors[held.devices] = 1.0
        worth = factors * speedups
        costs = np.array([self._cost(float(each), pool) for each in worth])
        return _Wish(job, held, costs)


def _following(
    wishes: Mapping[str, Sequence[_Wish]], held: Mapping[str, Placement | None], pool: Pool
) -> dict[str, Placement | None]:
    """What is held, but on kinds of device where something else is better."""
    found = dict(held)
    for kind, own in wishes.items():
        part = pool.by_kind()[kind]
        anew = _placed(own, _cheapest(own, part.available), part)
        now, then = (
            sum(wish.cost_of(placements[wish.job.id]) for wish in own)
            for placements in (held, anew)
        )
        if then < now - _LEAST_GAIN * abs(now):
            found |= anew
    return found


def _in_place(
    found: Mapping[str, Placement | None], jobs: Sequence[JobSnapshot], pool: Pool
) -> dict[str, Placement | None]:
    """Who is given as many devices as it holds stays where it is, if there is room after all."""
    packing = Packing(pool.capacity)
    kept = dict(found)
    for placement in found.values():
        packing.take(placement)
    for job in jobs:
        held, given = held_in(job, pool), kept[job.id]
        if held is None or given is None or held.devices != given.devices:
            continue
        packing.give_back(given)
        kept[job.id] = held if packing.has_room(held) else given
        packing.take(kept[job.id])
    return kept


def _why(placement: Placement | None, fair: int) -> str:
    if placement is None:
        return "every device does more for others"
    return f"{placement.devices} devices where {fair} would be a fair share"


def _by_kind(jobs: Sequence[JobSnapshot], pool: Pool) -> Mapping[str, list[JobSnapshot]]:
    """Each job at the kind it holds, at first at that with the most devices a job."""
    found: dict[str, list[JobSnapshot]] = {kind: [] for kind in pool.by_kind()}
    for job in sorted(jobs, key=lambda job: held_in(job, pool) is None):
        usable = pool.for_job(job)
        kind = pool.kind_of(held_in(job, pool)) or max(
            usable,
            key=lambda kind: (usable[kind].available / (1 + len(found[kind])), kind),
            default=None,
        )
        if kind is not None:
            found[kind].append(job)
    return {kind: by_submission(own) for kind, own in found.items()}


def _cheapest(wishes: Sequence[_Wish], available: int) -> list[int]:
    """Devices of each job for the least cost in all, by dynamic programming over the devices."""
    least = np.zeros(available + 1)
    given = np.arange(available + 1)
    left = given[:, None] - given[None, :]
    choices = []
    for wish in wishes:
        totals = np.where(left >= 0, least[left] + wish.costs[None, :], np.inf)
        choices.append(totals.argmin(axis=1))
        least = totals.min(axis=1)
    sizes: list[int] = []
    for choice in reversed(choices):
        size = int(choice[available])
        sizes.append(size)
        available -= size
    return sizes[::-1]


def _placed(
    wishes: Sequence[_Wish], sizes: Sequence[int], part: Pool
) -> dict[str, Placement | None]:
    """Who keeps its size keeps its place; of the others the largest first."""
    packing = Packing(part.capacity)
    found: dict[str, Placement | None] = {wish.job.id: None for wish in wishes}
    moving = []
    for wish, size in zip(wishes, sizes, strict=True):
        if size == wish.held_devices and wish.held is not None:
            packing.take(wish.held)
            found[wish.job.id] = wish.held
        elif size:
            moving.append((size, wish))
    for size, wish in sorted(moving, key=lambda each: -each[0]):
        placement = _room(packing, part, size, wish.held)
        packing.take(placement)
        found[wish.job.id] = placement
    return found


def _room(packing: Packing, part: Pool, size: int, held: Placement | None) -> Placement | None:
    """On one machine where that is large enough, or as much as one has left; else anywhere."""
    if size > max(part.capacity.values()):
        return packing.emptiest(size)
    for devices in range(size, 0, -1):
        if held is not None and held.devices == devices and packing.has_room(held):
            return held
        placement = packing.fit(devices)
        if placement is not None:
            return placement
    return None
