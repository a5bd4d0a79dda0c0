"""Gandiva: time slices when there are too many jobs, growth and migration when devices are idle.

Source: Xiao et al., "Gandiva: Introspective Cluster Scheduling for Deep Learning" (OSDI'18),
section 3: suspend-resume, migration, grow-shrink. Its packing of several jobs on one device is
left out: here each device has one job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.domain.allocation import Placement
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.policies.pools.optimism import goodputs
from autoscaler.policies.pools.packing import Packing
from autoscaler.policies.pools.pool import (
    Pool,
    Turns,
    by_submission,
    plan_of_placements,
    pool_of,
    requested,
)


@dataclass(frozen=True, slots=True)
class GandivaParameters:
    """Parameters of time slices and growth.

    Attributes:
        quantum_seconds: seconds that a job runs before another's turn; about 60 in the paper.
        growth: largest number of devices of a job, over its request; always on one machine.
        least_gain: relative speed-up for which a job keeps its additional devices.

    Raises:
        ValueError: the quantum is not above 0, growth is below 1 or the gain negative.
    """

    quantum_seconds: float = 60.0
    growth: int = 2
    least_gain: float = 0.1

    def __post_init__(self) -> None:
        if not self.quantum_seconds > 0:
            raise ValueError(f"quantum_seconds={self.quantum_seconds}: must be above 0")
        if self.growth < 1:
            raise ValueError(f"growth={self.growth}: must be at least 1")
        if self.least_gain < 0:
            raise ValueError(f"least_gain={self.least_gain}: must be 0 or more")


_DEFAULTS = GandivaParameters()


class GandivaPolicy:
    """Round robin: each job gets the devices it asked for, by the quanta that it has run.

    If jobs have to wait, those with the fewest quanta run first, earlier submissions first among
    equals. If none waits and devices are idle, jobs whose request fits one machine double on it,
    unless their own measurements show too little gain. A job spread over more machines than it
    needs moves to fewer. A job's speed is only compared with its own speed at another size;
    nothing is optimised.

    The attained service decides when a turn is over, so the policy keeps no state.
    """

    adapts_batch = False
    only_on = "pool"

    def __init__(self, parameters: GandivaParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs of the snapshot; see `Policy.plan`."""
        pool = pool_of(snapshot)
        queue = sorted(by_submission(snapshot.jobs), key=self._quanta)
        turns = Turns(pool, queue)
        kinds = {job.id: turns.take(job, requested(job, pool)) for job in queue}
        placements: dict[str, Placement | None] = dict.fromkeys(kinds)
        for kind, part in pool.by_kind().items():
            jobs = [job for job in queue if kinds[job.id] == kind]
            sizes = {job.id: requested(job, pool) for job in jobs}
            if None not in kinds.values():
                sizes = self._grown_sizes(jobs, sizes, part)
            placements |= _consolidated(jobs, sizes, part)
        reasons = {job.id: _reason(job, placements[job.id]) for job in queue}
        return plan_of_placements(snapshot, placements, reasons)

    def _quanta(self, job: JobSnapshot) -> int:
        """Return the number of whole quanta that the job has run on the devices it asked for."""
        seconds = job.service.attained_device_seconds / max(job.requested_devices or 1, 1)
        return int(seconds // self._parameters.quantum_seconds)

    def _grown_sizes(
        self, queue: Sequence[JobSnapshot], sizes: Mapping[str, int], part: Pool
    ) -> dict[str, int]:
        """Return devices by job id after idle devices double jobs, in the order of submission."""
        grown, largest = dict(sizes), max(part.capacity.values(), default=0)
        free = part.available - sum(sizes.values())
        for job in by_submission(queue):
            most = min(sizes[job.id] * self._parameters.growth, largest)
            while 2 * grown[job.id] <= most and grown[job.id] <= free:
                if not self._is_doubling_useful(job, part, grown[job.id]):
                    break
                free -= grown[job.id]
                grown[job.id] *= 2
        return grown

    def _is_doubling_useful(self, job: JobSnapshot, part: Pool, devices: int) -> bool:
        """Return whether twice the devices are clearly faster, or are not measured yet."""
        model = job.models.get(part.device_kind or "")
        if 2 * devices > job.batch.initial:
            return False
        if model is None or all(size != 2 * devices for _, size in model.measured):
            return True
        rigid = replace(job, batch=replace(job.batch, adaptive=False, maximum=job.batch.initial))
        present_goodput, doubled_goodput = goodputs(rigid, model, [(1, devices), (1, 2 * devices)])
        return doubled_goodput >= present_goodput * (1.0 + self._parameters.least_gain)


def _consolidated(
    queue: Sequence[JobSnapshot], sizes: Mapping[str, int], part: Pool
) -> dict[str, Placement | None]:
    """Return placements on as few machines as possible; spread jobs move where there is room."""
    packing = Packing(part.capacity)
    placements: dict[str, Placement | None] = dict.fromkeys(job.id for job in queue)
    for job in queue:
        held = job.placement
        if held is not None and held.devices == sizes[job.id] and packing.has_room(held):
            packing.take(held)
            placements[job.id] = held
    for job in sorted(queue, key=lambda job: -sizes[job.id]):
        if placements[job.id] is None and sizes[job.id]:
            placements[job.id] = packing.fit(sizes[job.id]) or packing.emptiest(sizes[job.id])
            packing.take(placements[job.id])
    for job in queue:
        present = placements[job.id]
        if present is None:
            continue
        packing.give_back(present)
        closer = packing.fit(present.devices, present)
        if closer is not None and len(closer.shares) < len(present.shares):
            placements[job.id] = closer
        packing.take(placements[job.id])
    return placements


def _reason(job: JobSnapshot, placement: Placement | None) -> str:
    requested_devices = job.requested_devices or 1
    if placement is None:
        return f"waits for {requested_devices} devices until others have run for as many quanta"
    if placement.devices > requested_devices:
        return f"asked for {requested_devices}, more devices are idle"
    held = job.placement
    if held is not None and held != placement and held.devices == placement.devices:
        return "fewer machines suffice"
    return "its turn"
