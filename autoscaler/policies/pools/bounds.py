"""Bounds on a job's devices of a pool under every policy: whole replicas and its own bounds.

Only a job's bounds on single machines and on types of machine apply (`InstanceBounds.maxima`). A
machine counts as an instance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from autoscaler.domain.allocation import Placement
from autoscaler.domain.goodput import PipelineParameters, ShardedParameters, StepParameters
from autoscaler.domain.snapshot import JobSnapshot


def replica_devices(job: JobSnapshot) -> int:
    """Return the devices of one replica of the job: its stages, or the holders of one copy."""
    return max((_replica_devices(model.point) for model in job.models.values()), default=1)


def _replica_devices(point: StepParameters) -> int:
    match point:
        case PipelineParameters(stages=stages):
            return stages
        case ShardedParameters(shard=shard):
            return shard
        case _:
            return 1


def whole(job: JobSnapshot, devices: int) -> int:
    """Return the most devices, up to `devices`, that make whole replicas."""
    return devices - devices % replica_devices(job)


def allowed(job: JobSnapshot, machines: Iterable[str], types: Mapping[str, str]) -> list[str]:
    """Return the machines, in the given order, up to the job's bounds on machines and types.

    `types` are the machines' instance types by id.
    """
    if not job.instances.maxima:
        return list(machines)
    counts: Counter[str] = Counter()
    permitted = []
    for machine in machines:
        names = {machine, types.get(machine, machine)}
        bounds = [(name, most) for name, most in job.instances.maxima if name in names]
        if all(counts[name] < most for name, most in bounds):
            counts.update(name for name, _ in bounds)
            permitted.append(machine)
    return permitted


def most_devices(job: JobSnapshot, capacity: Mapping[str, int], types: Mapping[str, str]) -> int:
    """Return the devices in whole replicas that the job may have of machines (id -> devices)."""
    largest_first = sorted(capacity, key=lambda machine: -capacity[machine])
    return whole(job, sum(capacity[machine] for machine in allowed(job, largest_first, types)))


def within(
    job: JobSnapshot, placement: Placement | None, types: Mapping[str, str]
) -> Placement | None:
    """Return the placement cut to the job's bounds, present machines first; None if empty."""
    if placement is None or (not job.instances.maxima and replica_devices(job) == 1):
        return placement
    held, given = dict(job.placement.shares if job.placement else ()), dict(placement.shares)
    kept_first = sorted(given, key=lambda machine: (-held.get(machine, 0), -given[machine]))
    machines = allowed(job, kept_first, types)
    remaining = whole(job, sum(given[machine] for machine in machines))
    shares = {}
    for machine in machines:
        shares[machine] = min(given[machine], remaining)
        remaining -= shares[machine]
    kept_shares = tuple(
        sorted((machine, devices) for machine, devices in shares.items() if devices)
    )
    return Placement(kept_shares) if kept_shares else None
