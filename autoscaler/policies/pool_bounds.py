"""What a job may have of a pool, whatever a policy would give it: whole replicas, its own bounds.

Of a job's bounds those on single machines and types of machine count (`InstanceBounds.maxima`);
a machine is an instance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from autoscaler.domain.allocation import Placement
from autoscaler.domain.goodput import PipelineParameters
from autoscaler.domain.snapshot import JobSnapshot


def stages_of(job: JobSnapshot) -> int:
    """Devices that make one replica of the job."""
    points = (model.point for model in job.models.values())
    return next((each.stages for each in points if isinstance(each, PipelineParameters)), 1)


def whole(job: JobSnapshot, devices: int) -> int:
    """The most of these devices that make whole replicas."""
    return devices - devices % stages_of(job)


def allowed(job: JobSnapshot, machines: Iterable[str], types: Mapping[str, str]) -> list[str]:
    """Of machines in the order of preference as many as the job may have.

    `types` are their instance types, by id.
    """
    if not job.instances.maxima:
        return list(machines)
    counts: Counter[str] = Counter()
    found = []
    for machine in machines:
        names = {machine, types.get(machine, machine)}
        own = [(name, most) for name, most in job.instances.maxima if name in names]
        if all(counts[name] < most for name, most in own):
            counts.update(name for name, _ in own)
            found.append(machine)
    return found


def most_devices(job: JobSnapshot, capacity: Mapping[str, int], types: Mapping[str, str]) -> int:
    """What it may have of these machines (id -> devices), in whole replicas."""
    largest_first = sorted(capacity, key=lambda machine: -capacity[machine])
    return whole(job, sum(capacity[each] for each in allowed(job, largest_first, types)))


def within(
    job: JobSnapshot, placement: Placement | None, types: Mapping[str, str]
) -> Placement | None:
    """What is left of a placement within the job's bounds, rather of where it is already."""
    if placement is None or (not job.instances.maxima and stages_of(job) == 1):
        return placement
    held, given = dict(job.placement.shares if job.placement else ()), dict(placement.shares)
    kept_first = sorted(given, key=lambda machine: (-held.get(machine, 0), -given[machine]))
    machines = allowed(job, kept_first, types)
    left = whole(job, sum(given[machine] for machine in machines))
    shares = {}
    for machine in machines:
        shares[machine] = min(given[machine], left)
        left -= shares[machine]
    found = tuple(sorted((machine, devices) for machine, devices in shares.items() if devices))
    return Placement(found) if found else None
