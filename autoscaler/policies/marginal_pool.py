"""Marginal goodput on machines that are paid for already: the most worth that the pool bears."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np

from autoscaler.domain.allocation import Placement
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.price import hull
from autoscaler.economics.wording import duration, number
from autoscaler.policies.marginal_kinds import Placed, plan_kinds
from autoscaler.policies.packing import Packing
from autoscaler.policies.pool import Pool, plan_of_placements, pool_of
from autoscaler.policies.pool_bids import Bid, bids

# A plan is made again from where it leads, until that is where it leads.
_PASSES = 10
# A plan that is worth more by a smaller share is worth no more.
_LEAST_GAIN = 1e-9

_Placements = Mapping[str, Placement | None]


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """A job as it stands: `worth` (devices -> worth) is from what it holds; 0 of no devices."""

    id: str
    held: Placement | None
    worth: Mapping[int, float]

    @property
    def held_devices(self) -> int:
        return _devices(self.held)


def _devices(placement: Placement | None) -> int:
    return placement.devices if placement else 0


def plan_pool(snapshot: Snapshot) -> Plan:
    """The plan for jobs that share the machines of the snapshot."""
    pool = pool_of(snapshot)
    jobs = sorted(snapshot.jobs, key=lambda job: job.id)
    able = [job for job in jobs if any(part.available for part in pool.for_job(job).values())]
    placements: dict[str, Placement | None] = dict.fromkeys(job.id for job in jobs)
    reasons = dict.fromkeys(placements, "there is no device to be had that it may use")
    if not able:
        return plan_of_placements(snapshot, placements, reasons)
    if len(pool.by_kind()) > 1:
        found = plan_kinds(able, pool, snapshot.now_seconds)
    else:
        found = _plan_kind(able, pool, snapshot.now_seconds)
    plan = plan_of_placements(
        snapshot, {**placements, **found.placements}, {**reasons, **found.reasons}
    )
    return plan if found.trouble is None else replace(plan, notes=(found.trouble,))


def _plan_kind(jobs: Sequence[JobSnapshot], pool: Pool, now_seconds: float) -> Placed:
    offered = bids(jobs, pool, now_seconds)
    placements: _Placements = {job.id: _within(job.placement, pool) for job in jobs}
    for _ in range(_PASSES):
        following = _improved(offered, placements, pool)
        if following == placements:
            break
        placements = following
    placements = _settled(offered, placements, pool)
    reasons = {bid.job.id: _why(bid, placements[bid.job.id]) for bid in offered}
    return Placed(placements, reasons)


def _within(placement: Placement | None, pool: Pool) -> Placement | None:
    """What is held, if there still is as much of it."""
    shares = placement.shares if placement else ()
    is_there = all(devices <= pool.capacity.get(offer, 0) for offer, devices in shares)
    return placement if is_there else None


def _improved(
    offered: Sequence[Bid], held: _Placements, pool: Pool
) -> dict[str, Placement | None]:
    """The plan from what is held, or what is held with more of it, whichever is worth more."""
    jobs = [_standing(bid, held[bid.job.id]) for bid in offered]
    return _worthier(jobs, _sizes(jobs, pool.available), pool)


def _worthier(
    jobs: Sequence[_Job], sizes: Mapping[str, int], pool: Pool
) -> dict[str, Placement | None]:
    """Placements of these sizes, or what is held with more of it, whichever is worth more."""
    stays = _packed(jobs, {job.id: job.held_devices for job in jobs}, pool)
    moves = _packed(jobs, sizes, pool)
    is_better = _worth(jobs, moves) > _worth(jobs, stays) * (1.0 + _LEAST_GAIN)
    return moves if is_better else stays


def _settled(offered: Sequence[Bid], planned: _Placements, pool: Pool) -> _Placements:
    """The plan, with each job of an unchanged size where it is and the others around it.

    Each pass starts from what the one before planned. A job that grew in one and shrank in the
    next may be elsewhere than it is, by a move that no pass has charged it with.
    """
    held = {bid.job.id: _within(bid.job.placement, pool) for bid in offered}
    sizes = {name: _devices(placement) for name, placement in planned.items()}
    if all(planned[name] == held[name] or sizes[name] != _devices(held[name]) for name in held):
        return planned
    return _worthier([_standing(bid, held[bid.job.id]) for bid in offered], sizes, pool)


def _standing(bid: Bid, held: Placement | None) -> _Job:
    return _Job(bid.job.id, held, {0: 0.0, **bid.worth_from(_devices(held))})


def _worth(jobs: Sequence[_Job], placements: _Placements) -> float:
    return sum(job.worth[_devices(placements[job.id])] for job in jobs)


def _sizes(jobs: Sequence[_Job], available: int) -> dict[str, int]:
    """Devices of each job: along the concave envelopes, the worthiest step first."""
    steps = [
        ((job.worth[before] - job.worth[size]) / (size - before), job.id, before, size)
        for job in jobs
        for before, size in pairwise(_envelope(job))
    ]
    sizes = {job.id: 0 for job in jobs}
    for _, name, before, size in sorted(steps):
        if sizes[name] == before and size - before <= available:
            available -= size - before
            sizes[name] = size
    return sizes


def _envelope(job: _Job) -> list[int]:
    """The sizes on the upper hull of worth over devices, from 0 on."""
    sizes = [size for size in job.worth if size]
    worth = np.array([job.worth[size] for size in sizes])
    devices = np.array(sizes, dtype=np.float64)
    corners = hull(devices, worth, np.ones(len(sizes), dtype=np.bool_))
    return [0, *(sizes[corner] for corner in corners)]


def _packed(
    jobs: Sequence[_Job], sizes: Mapping[str, int], pool: Pool
) -> dict[str, Placement | None]:
    """Placements of these sizes, or of the best smaller ones that fit; then the rest filled."""
    packing = Packing(pool.capacity)
    found: dict[str, Placement | None] = dict.fromkeys(job.id for job in jobs)
    moving = []
    for job in jobs:
        stays = sizes[job.id] == job.held_devices and job.held_devices in job.worth
        if stays and (job.held is None or packing.has_room(job.held)):
            packing.take(job.held)
            found[job.id] = job.held
        else:
            moving.append(job)
    for job in sorted(moving, key=lambda job: -sizes[job.id]):
        found[job.id] = _best_fit(job, sizes[job.id], packing)
    _fill(jobs, found, packing)
    return found


def _best_fit(job: _Job, most: int, packing: Packing) -> Placement | None:
    """Take what is worth most among the sizes up to `most` that fit."""
    sizes = sorted(size for size in job.worth if 0 < size <= most)
    for size in sorted(sizes, key=lambda size: -job.worth[size]):
        placement = _fit(job, size, packing)
        if placement is not None:
            packing.take(placement)
            return placement
    return None


def _fit(job: _Job, size: int, packing: Packing) -> Placement | None:
    """A job that keeps its size keeps its place, or does not keep its size."""
    if job.held is not None and size == job.held_devices:
        return job.held if packing.has_room(job.held) else None
    return packing.fit(size, job.held)


def _fill(jobs: Sequence[_Job], found: dict[str, Placement | None], packing: Packing) -> None:
    """Give what is left free where a device more is worth most, as far as it fits."""
    by_id = {job.id: job for job in jobs}
    heap = [step for job in jobs for step in _growth(job, found[job.id], packing.free_devices)]
    heapify(heap)
    while heap and packing.free_devices:
        _, name, before, size = heappop(heap)
        job, now = by_id[name], found[name]
        if before != _devices(now):
            continue
        packing.give_back(now)
        grown = _fit(job, size, packing)
        packing.take(grown or now)
        if grown is not None:
            found[name] = grown
            for step in _growth(job, grown, packing.free_devices):
                heappush(heap, step)


def _growth(
    job: _Job, placement: Placement | None, free: int
) -> list[tuple[float, str, int, int]]:
    """Steps (-worth a device, job, from, to) up from a placement, each worth something."""
    now = _devices(placement)
    return [
        ((job.worth[now] - worth) / (size - now), job.id, now, size)
        for size, worth in job.worth.items()
        if now < size <= now + free and worth > job.worth[now] * (1.0 + _LEAST_GAIN)
    ]


def _why(bid: Bid, placement: Placement | None) -> str:
    if placement is None:
        return "every device is worth more to others"
    left, worth = bid.seconds[placement.devices], bid.worth[placement.devices]
    return (
        f"{duration(left)} left, worth {number(worth)} s of waiting a second, "
        f"a device {number(bid.finish_price)} when it ends"
    )
