"""Gandiva: time slices when there are too many jobs, growth and migration when there is room.

Source: Xiao et al., "Gandiva: Introspective Cluster Scheduling for Deep Learning" (OSDI'18),
section 3: suspend-resume, migration, grow-shrink. Its packing of several jobs on one device is
left out: here a device has one job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.domain.allocation import Placement
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.policies.optimism import goodputs
from autoscaler.policies.packing import Packing
from autoscaler.policies.pool import (
    Pool,
    Turns,
    by_submission,
    plan_of_placements,
    pool_of,
    requested,
)


@dataclass(frozen=True, slots=True)
class GandivaParameters:
    """How it slices and grows.

    Attributes:
        quantum_seconds: for which a job runs before another's turn; about a minute in the paper.
        growth: a job grows to so many times the devices that it asked for, on one machine.
        least_gain: a job keeps what it grew to where that makes it so much faster.

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
    """Each job gets what it asked for, in turn by the quanta that it has had.

    Where jobs have to wait, those that have run for the fewest quanta go first, then those that
    came first. Where none waits and devices are idle, jobs that asked for no more than a machine
    has grow on one, if their own measurements do not speak against it; and a job that lies on
    more machines than it needs is moved together. Nothing is optimised: a job's speed is compared
    only with its own at another size.

    A turn is over by what a job has had, so the policy needs no memory.
    """

    adapts_batch = False
    only_on = "pool"

    def __init__(self, parameters: GandivaParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        pool = pool_of(snapshot)
        queue = sorted(by_submission(snapshot.jobs), key=self._quanta)
        turns = Turns(pool, queue)
        kinds = {job.id: turns.take(job, requested(job, pool)) for job in queue}
        found: dict[str, Placement | None] = dict.fromkeys(kinds)
        for kind, part in pool.by_kind().items():
            own = [job for job in queue if kinds[job.id] == kind]
            sizes = {job.id: requested(job, pool) for job in own}
            if None not in kinds.values():
                sizes = self._grown(own, sizes, part)
            found |= _together(own, sizes, part)
        reasons = {job.id: _why(job, found[job.id]) for job in queue}
        return plan_of_placements(snapshot, found, reasons)

    def _quanta(self, job: JobSnapshot) -> int:
        """Whole quanta for which it has run on what it asked for."""
        seconds = job.service.attained_device_seconds / max(job.requested_devices or 1, 1)
        return int(seconds // self._parameters.quantum_seconds)

    def _grown(
        self, queue: Sequence[JobSnapshot], sizes: Mapping[str, int], part: Pool
    ) -> dict[str, int]:
        """With what is idle, in the order of submission, twice as much at a time."""
        found, largest = dict(sizes), max(part.capacity.values(), default=0)
        left = part.available - sum(sizes.values())
        for job in by_submission(queue):
            most = min(sizes[job.id] * self._parameters.growth, largest)
            while 2 * found[job.id] <= most and found[job.id] <= left:
                if not self._is_worth_it(job, part, found[job.id]):
                    break
                left -= found[job.id]
                found[job.id] *= 2
        return found

    def _is_worth_it(self, job: JobSnapshot, part: Pool, devices: int) -> bool:
        """Whether twice the devices are clearly faster, or have not been tried yet."""
        model = job.models.get(part.device_kind or "")
        if 2 * devices > job.batch.initial:
            return False
        if model is None or all(size != 2 * devices for _, size in model.measured):
            return True
        rigid = replace(job, batch=replace(job.batch, adaptive=False, maximum=job.batch.initial))
        now, more = goodputs(rigid, model, [(1, devices), (1, 2 * devices)])
        return more >= now * (1.0 + self._parameters.least_gain)


def _together(
    queue: Sequence[JobSnapshot], sizes: Mapping[str, int], part: Pool
) -> dict[str, Placement | None]:
    """Each on as few machines as can be; who is spread is moved where there is room for it."""
    packing = Packing(part.capacity)
    found: dict[str, Placement | None] = dict.fromkeys(job.id for job in queue)
    for job in queue:
        held = job.placement
        if held is not None and held.devices == sizes[job.id] and packing.has_room(held):
            packing.take(held)
            found[job.id] = held
    for job in sorted(queue, key=lambda job: -sizes[job.id]):
        if found[job.id] is None and sizes[job.id]:
            found[job.id] = packing.fit(sizes[job.id]) or packing.emptiest(sizes[job.id])
            packing.take(found[job.id])
    for job in queue:
        now = found[job.id]
        if now is None:
            continue
        packing.give_back(now)
        closer = packing.fit(now.devices, now)
        if closer is not None and len(closer.shares) < len(now.shares):
            found[job.id] = closer
        packing.take(found[job.id])
    return found


def _why(job: JobSnapshot, placement: Placement | None) -> str:
    wanted = job.requested_devices or 1
    if placement is None:
        return f"its turn for {wanted} devices comes when others have had as much time"
    if placement.devices > wanted:
        return f"it asked for {wanted}, others are idle"
    held = job.placement
    if held is not None and held != placement and held.devices == placement.devices:
        return "together on fewer machines"
    return "its turn"
