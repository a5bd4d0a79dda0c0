"""Marginal goodput on a fixed pool of machines: the greatest total worth of its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np

from autoscaler.domain.allocation import Placement
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.pricing.price import hull
from autoscaler.economics.pricing.wording import duration, number
from autoscaler.policies.pools.bids import DeviceBid, bids
from autoscaler.policies.pools.marginal_kinds import PoolAssignment, plan_kinds
from autoscaler.policies.pools.packing import Packing
from autoscaler.policies.pools.pool import Pool, plan_of_placements, pool_of

# Replan from the planned state until it no longer changes, at most so many times.
_PASSES = 10
# Relative gain in worth below which a plan counts as no better.
_LEAST_GAIN = 1e-9

_Placements = Mapping[str, Placement | None]


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """Job with its present placement and the worth of each number of devices from there.

    `worth` maps devices to weighted seconds of waiting per second; 0 devices are worth 0.
    """

    id: str
    held: Placement | None
    worth: Mapping[int, float]

    @property
    def held_devices(self) -> int:
        """Number of devices held."""
        return _devices(self.held)


def _devices(placement: Placement | None) -> int:
    return placement.devices if placement else 0


def plan_pool(snapshot: Snapshot) -> Plan:
    """Return the plan of jobs that share the machines of the snapshot."""
    pool = pool_of(snapshot)
    jobs = sorted(snapshot.jobs, key=lambda job: job.id)
    able = [job for job in jobs if any(part.available for part in pool.for_job(job).values())]
    placements: dict[str, Placement | None] = dict.fromkeys(job.id for job in jobs)
    reasons = dict.fromkeys(placements, "no device that the job may use is available")
    if not able:
        return plan_of_placements(snapshot, placements, reasons)
    if len(pool.by_kind()) > 1:
        placed = plan_kinds(able, pool, snapshot.now_seconds)
    else:
        placed = _plan_kind(able, pool, snapshot.now_seconds)
    plan = plan_of_placements(
        snapshot, {**placements, **placed.placements}, {**reasons, **placed.reasons}
    )
    return plan if placed.trouble is None else replace(plan, notes=(placed.trouble,))


def _plan_kind(jobs: Sequence[JobSnapshot], pool: Pool, now_seconds: float) -> PoolAssignment:
    """Return placements and reasons of jobs on machines of one kind."""
    job_bids = bids(jobs, pool, now_seconds)
    placements: _Placements = {job.id: _present_placement(job.placement, pool) for job in jobs}
    for _ in range(_PASSES):
        following = _improve(job_bids, placements, pool)
        if following == placements:
            break
        placements = following
    placements = _undo_needless_moves(job_bids, placements, pool)
    reasons = {bid.job.id: _reason(bid, placements[bid.job.id]) for bid in job_bids}
    return PoolAssignment(placements, reasons)


def _present_placement(placement: Placement | None, pool: Pool) -> Placement | None:
    """Return the placement if all of its devices are still in the pool, else None."""
    shares = placement.shares if placement else ()
    is_there = all(devices <= pool.capacity.get(offer, 0) for offer, devices in shares)
    return placement if is_there else None


def _improve(
    job_bids: Sequence[DeviceBid], held: _Placements, pool: Pool
) -> dict[str, Placement | None]:
    """Return the plan from the held placements, or those extended, whichever is worth more."""
    jobs = [_job(bid, held[bid.job.id]) for bid in job_bids]
    return _better_of(jobs, _sizes_by_worth(jobs, pool.available), pool)


def _better_of(
    jobs: Sequence[_Job], sizes: Mapping[str, int], pool: Pool
) -> dict[str, Placement | None]:
    """Return placements of these sizes, or the held ones extended, whichever is worth more."""
    stays = _pack(jobs, {job.id: job.held_devices for job in jobs}, pool)
    moves = _pack(jobs, sizes, pool)
    is_better = _total_worth(jobs, moves) > _total_worth(jobs, stays) * (1.0 + _LEAST_GAIN)
    return moves if is_better else stays


def _undo_needless_moves(
    job_bids: Sequence[DeviceBid], planned: _Placements, pool: Pool
) -> _Placements:
    """Return the plan with jobs of unchanged size left in place, if that is worth no less.

    Each pass starts from the plan of the previous pass. A job that grows in one pass and shrinks
    in a later one can end on other devices, a move that no pass charged.
    """
    held = {bid.job.id: _present_placement(bid.job.placement, pool) for bid in job_bids}
    sizes = {job: _devices(placement) for job, placement in planned.items()}
    if all(planned[job] == held[job] or sizes[job] != _devices(held[job]) for job in held):
        return planned
    return _better_of([_job(bid, held[bid.job.id]) for bid in job_bids], sizes, pool)


def _job(bid: DeviceBid, held: Placement | None) -> _Job:
    """Return the job with its worth from what it holds."""
    return _Job(bid.job.id, held, {0: 0.0, **bid.worth_from(_devices(held))})


def _total_worth(jobs: Sequence[_Job], placements: _Placements) -> float:
    """Return the total worth of the placements."""
    return sum(job.worth[_devices(placements[job.id])] for job in jobs)


def _sizes_by_worth(jobs: Sequence[_Job], available: int) -> dict[str, int]:
    """Return devices by job id along the concave envelopes, most valuable step first."""
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
    """Return the sizes on the upper hull of worth over devices, ascending from 0."""
    sizes = [size for size in job.worth if size]
    worth = np.array([job.worth[size] for size in sizes])
    devices = np.array(sizes, dtype=np.float64)
    corners = hull(devices, worth, np.ones(len(sizes), dtype=np.bool_))
    return [0, *(sizes[corner] for corner in corners)]


def _pack(
    jobs: Sequence[_Job], sizes: Mapping[str, int], pool: Pool
) -> dict[str, Placement | None]:
    """Return placements of these sizes, or the best smaller ones that fit, then fill the rest."""
    packing = Packing(pool.capacity)
    placements: dict[str, Placement | None] = dict.fromkeys(job.id for job in jobs)
    moving = []
    for job in jobs:
        stays = sizes[job.id] == job.held_devices and job.held_devices in job.worth
        if stays and (job.held is None or packing.has_room(job.held)):
            packing.take(job.held)
            placements[job.id] = job.held
        else:
            moving.append(job)
    for job in sorted(moving, key=lambda job: -sizes[job.id]):
        placements[job.id] = _best_fit(job, sizes[job.id], packing)
    _fill_free_devices(jobs, placements, packing)
    return placements


def _best_fit(job: _Job, most: int, packing: Packing) -> Placement | None:
    """Take the size of the most worth that fits, up to `most` devices; None if none fits."""
    sizes = sorted(size for size in job.worth if 0 < size <= most)
    for size in sorted(sizes, key=lambda size: -job.worth[size]):
        placement = _fit(job, size, packing)
        if placement is not None:
            packing.take(placement)
            return placement
    return None


def _fit(job: _Job, size: int, packing: Packing) -> Placement | None:
    """Return the placement of a size: the held one for the held size, else any that fits."""
    if job.held is not None and size == job.held_devices:
        return job.held if packing.has_room(job.held) else None
    return packing.fit(size, job.held)


def _fill_free_devices(
    jobs: Sequence[_Job], placements: dict[str, Placement | None], packing: Packing
) -> None:
    """Give free devices to jobs where they add the most worth, as far as they fit."""
    by_id = {job.id: job for job in jobs}
    heap = [
        step
        for job in jobs
        for step in _growth_steps(job, placements[job.id], packing.free_devices)
    ]
    heapify(heap)
    while heap and packing.free_devices:
        _, name, before, size = heappop(heap)
        job, present = by_id[name], placements[name]
        if before != _devices(present):
            continue
        packing.give_back(present)
        grown = _fit(job, size, packing)
        packing.take(grown or present)
        if grown is not None:
            placements[name] = grown
            for step in _growth_steps(job, grown, packing.free_devices):
                heappush(heap, step)


def _growth_steps(
    job: _Job, placement: Placement | None, free: int
) -> list[tuple[float, str, int, int]]:
    """Return the steps up from a placement, as (-worth per device, job, from, to).

    Only steps that add worth and need at most `free` devices are returned.
    """
    present_devices = _devices(placement)
    return [
        (
            (job.worth[present_devices] - worth) / (size - present_devices),
            job.id,
            present_devices,
            size,
        )
        for size, worth in job.worth.items()
        if present_devices < size <= present_devices + free
        and worth > job.worth[present_devices] * (1.0 + _LEAST_GAIN)
    ]


def _reason(bid: DeviceBid, placement: Placement | None) -> str:
    if placement is None:
        return "every device is worth more to other jobs"
    seconds_left, worth = bid.seconds[placement.devices], bid.worth[placement.devices]
    return (
        f"{duration(seconds_left)} left, worth {number(worth)} s of waiting per second, "
        f"a device {number(bid.finish_price)} when it ends"
    )
