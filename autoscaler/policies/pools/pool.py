"""Fixed pool of machines that jobs share: sizes, placements and the plan made of them.

A job has devices of one kind at a time, of a kind that it has a model of, in whole replicas and
within its own bounds on machines. No limits apply beyond the machines' devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.domain.allocation import Placement
from autoscaler.domain.offer import Offer
from autoscaler.domain.plan import Action, Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.policies.pools.bounds import allowed, most_devices, replica_devices, whole, within
from autoscaler.policies.pools.packing import Packing

# Most machines of a placement that a reason lists by name.
_MACHINES_NAMED = 2


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The machines that jobs share.

    Attributes:
        devices: devices of all machines.
        capacity: devices available now by offer id, in the order of the ids; of an unavailable
            machine only those that jobs hold.
        device_kind: kind of most devices; None if there is no machine.
        parts: pool of each kind by name, where there are several kinds; else empty.
        types: instance type of each machine by offer id.
    """

    devices: int
    capacity: Mapping[str, int]
    device_kind: str | None
    parts: Mapping[str, Pool] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)

    @property
    def available(self) -> int:
        """Devices available now, over all machines."""
        return sum(self.capacity.values())

    def by_kind(self) -> Mapping[str, Pool]:
        """Return the machines of each kind of device by name; of one kind, this pool itself."""
        if self.parts or self.device_kind is None:
            return self.parts
        return {self.device_kind: self}

    def for_job(self, job: JobSnapshot) -> Mapping[str, Pool]:
        """Return the machines of each kind that the job has a model of; all if it has no model."""
        return {
            kind: part
            for kind, part in self.by_kind().items()
            if kind in job.models or not job.models
        }

    def most_of(self, job: JobSnapshot) -> int:
        """Return the most devices that the job may have of all machines, in whole replicas."""
        if not job.instances.maxima:
            return whole(job, self.devices)
        return most_devices(job, self.capacity, self.types)

    def kind_of(self, placement: Placement | None) -> str | None:
        """Return the kind of device of a placement; None if it has none or several."""
        offers = {offer for offer, _ in placement.shares} if placement else set()
        kinds = (kind for kind, part in self.by_kind().items() if offers <= part.capacity.keys())
        return next(kinds, None) if offers else None

    def fewest_machines(self) -> tuple[int, ...]:
        """Return the least number of machines that hold 1, 2, ... all available devices."""
        largest_first = sorted(self.capacity.values(), reverse=True)
        return tuple(
            machine
            for machine, devices in enumerate(largest_first, start=1)
            for _ in range(devices)
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """Devices given to a job, and the rule as a clause of its reason.

    Attributes:
        devices: number of devices; 0 for none.
        why: clause of the reason.
        kind: kind of device; None for any.
    """

    devices: int
    why: str
    kind: str | None = None


def pool_of(snapshot: Snapshot) -> Pool:
    """Return the pool of the snapshot's shared offers."""
    machines = sorted(
        (offer for offer in snapshot.offers if offer.shared), key=lambda offer: offer.id
    )
    held: Counter[str] = Counter()
    for job in snapshot.jobs:
        held.update(dict(job.placement.shares if job.placement else ()))
    capacity = {
        offer.id: min(offer.devices, held[offer.id])
        if offer.id in snapshot.unavailable
        else offer.devices
        for offer in machines
    }
    kinds = sorted({offer.device_kind for offer in machines})
    parts = {
        kind: _pool_of_kind([offer for offer in machines if offer.device_kind == kind], capacity)
        for kind in kinds
    }
    if len(parts) == 1:
        return parts[kinds[0]]
    usual = max(kinds, key=lambda kind: parts[kind].devices, default=None)
    types = {offer.id: offer.instance_type for offer in machines}
    return Pool(sum(part.devices for part in parts.values()), capacity, usual, parts, types)


def _pool_of_kind(machines: Sequence[Offer], capacity: Mapping[str, int]) -> Pool:
    """Return the pool of machines of one kind."""
    return Pool(
        devices=sum(offer.devices for offer in machines),
        capacity={offer.id: capacity[offer.id] for offer in machines},
        device_kind=machines[0].device_kind,
        types={offer.id: offer.instance_type for offer in machines},
    )


def by_submission(jobs: Iterable[JobSnapshot]) -> list[JobSnapshot]:
    """Return the jobs in the order of submission, then of ids."""
    return sorted(jobs, key=lambda job: (job.submitted_seconds, job.id))


def requested(job: JobSnapshot, pool: Pool) -> int:
    """Return the devices that a rigid job asked for, at least one, at most those it may have.

    Devices are in whole replicas, at least one replica where there is room.
    """
    most = max((part.most_of(job) for part in pool.for_job(job).values()), default=0)
    return min(whole(job, max(job.requested_devices or 1, replica_devices(job))), most)


def gangs(
    queue: Iterable[JobSnapshot], pool: Pool, free: int, backfills: bool = True
) -> dict[str, int]:
    """Return each job's requested devices if one kind has as many free, in turn, else 0.

    Args:
        queue: jobs in the order of service.
        pool: machines that they share.
        free: devices to give in all.
        backfills: if false, no idle job gets devices after the first idle job that has to wait.
    """
    jobs = list(queue)
    turns = Turns(pool, jobs)
    given = {}
    for job in jobs:
        request = requested(job, pool)
        kind = turns.take(job, request if request <= free else 0)
        given[job.id] = 0 if kind is None else request
        free -= given[job.id]
        if kind is None and not backfills and job.placement is None:
            free = 0
    return given


class Turns:
    """Choice of a kind of device for each job, when jobs are served in turn.

    A job keeps its kind. Other jobs get the kind with the most devices that no job holds, so that
    few jobs have to leave. Equal queues give equal choices.
    """

    def __init__(self, pool: Pool, queue: Iterable[JobSnapshot]) -> None:
        self._pool = pool
        self._left = {kind: part.available for kind, part in pool.by_kind().items()}
        self._idle = Counter(self._left)
        for job in queue:
            self._hold(job, 1)

    def take(self, job: JobSnapshot, devices: int) -> str | None:
        """Take devices of one kind and return it; None for 0 devices or if no kind has enough."""
        self._hold(job, -1)
        sufficient_kinds = [
            kind
            for kind, part in self._pool.for_job(job).items()
            if 0 < devices <= min(self._left[kind], part.most_of(job))
        ]
        if not sufficient_kinds:
            return None
        held = self._pool.kind_of(job.placement)
        kind = (
            held
            if held in sufficient_kinds
            else max(sufficient_kinds, key=lambda kind: self._idle[kind])
        )
        self._left[kind] -= devices
        self._idle[kind] -= devices
        return kind

    def take_more(self, kind: str, devices: int) -> int:
        """Take further devices of a kind, at most those left; return their number."""
        taken = min(devices, self._left[kind])
        self._left[kind] -= taken
        self._idle[kind] -= taken
        return taken

    def _hold(self, job: JobSnapshot, sign: int) -> None:
        """Add (sign 1) or remove (sign -1) a job's held devices from those counted as not idle."""
        kind = self._pool.kind_of(job.placement)
        if kind is not None and job.placement is not None:
            self._idle[kind] -= sign * job.placement.devices


def plan_of(
    snapshot: Snapshot, pool: Pool, queue: Sequence[JobSnapshot], grants: Mapping[str, Grant]
) -> Plan:
    """Return the plan that gives every job its grant, by id; see `place` for `queue`."""
    sizes = {job: grant.devices for job, grant in grants.items()}
    kinds = {job: grant.kind for job, grant in grants.items() if grant.kind is not None}
    placements = place(queue, sizes, pool, kinds)
    return plan_of_placements(
        snapshot, placements, {job: grant.why for job, grant in grants.items()}
    )


def plan_of_placements(
    snapshot: Snapshot, placements: Mapping[str, Placement | None], reasons: Mapping[str, str]
) -> Plan:
    """Return the plan of the placements by job id, cut to each job's bounds.

    Each reason is a clause.
    """
    types = {offer.id: offer.instance_type for offer in snapshot.offers if offer.shared}
    return Plan(
        decisions=tuple(
            _decision(job, within(job, placements[job.id], types), reasons[job.id])
            for job in sorted(snapshot.jobs, key=lambda job: job.id)
        ),
        shadow_prices={limit.name: 0.0 for limit in snapshot.limits},
    )


def place(
    queue: Sequence[JobSnapshot],
    sizes: Mapping[str, int],
    pool: Pool,
    kinds: Mapping[str, str] | None = None,
) -> dict[str, Placement | None]:
    """Return placements by job id for sizes that together fit the pool.

    A job whose size is unchanged keeps its placement. The other jobs follow in the order of the
    queue, each on the emptiest machines of one kind, ties by id.

    Args:
        queue: jobs in the order of placement.
        sizes: devices by job id.
        pool: machines that they share.
        kinds: kind of device by job id, for all jobs or none. Without it kinds are chosen as in
            `gangs`; a job for which no kind has enough devices gets none.

    Source: the ports of Optimus and Tiresias in the simulator of Pollux (OSDI'21).
    """
    kind_turns, parts, packing = Turns(pool, queue), pool.by_kind(), Packing(pool.capacity)
    chosen: Mapping[str, str | None]
    chosen = kinds or {job.id: kind_turns.take(job, sizes[job.id]) for job in queue}
    placements: dict[str, Placement | None] = {}
    for job in queue:
        held, kind = job.placement, chosen.get(job.id)
        stays = held is not None and held.devices == sizes[job.id] and packing.has_room(held)
        if stays and pool.kind_of(held) == kind:
            packing.take(held)
            placements[job.id] = held
    for job in queue:
        if job.id not in placements:
            kind = chosen.get(job.id)
            placement = _emptiest(job, sizes[job.id], parts[kind], packing) if kind else None
            packing.take(placement)
            placements[job.id] = placement
    return placements


def _emptiest(job: JobSnapshot, size: int, part: Pool, packing: Packing) -> Placement | None:
    """Return devices of the emptiest machines the job may have; None if its bounds cut them."""
    machines = allowed(job, packing.roomiest(part.capacity), part.types)
    placement = packing.emptiest(size, machines)
    is_short = placement is not None and placement.devices < size
    return None if is_short and job.instances.maxima else placement


def _decision(job: JobSnapshot, placement: Placement | None, clause: str) -> Decision:
    action = _action(job.placement, placement)
    return Decision(
        job=job.id,
        action=action,
        current=job.held,
        target=None,
        reason=f"{action.value} {_change(job, placement)}: {clause}",
        placement=placement,
    )


def _action(held: Placement | None, placement: Placement | None) -> Action:
    """Return the action that leads from the held placement to the new one."""
    if placement is None:
        return Action.WAIT
    if held is None:
        return Action.START
    if held == placement:
        return Action.HOLD
    if held.devices == placement.devices:
        return Action.MOVE
    return Action.GROW if placement.devices > held.devices else Action.SHRINK


def _change(job: JobSnapshot, placement: Placement | None) -> str:
    """Return the job's id and its change of devices, as text for a reason.

    The change is from `job.placement` to `placement`; None is no devices.
    """
    held = job.placement
    if placement is None:
        return job.id if held is None else f"{job.id} without {_devices_on_machines(held)}"
    if held is None or held == placement:
        return f"{job.id} with {_devices_on_machines(placement)}"
    return f"{job.id} from {_devices_on_machines(held)} to {_devices_on_machines(placement)}"


def _devices_on_machines(placement: Placement) -> str:
    """Return the placement as text: devices by machine, or the number of machines if many."""
    machines = len(placement.shares)
    if machines > _MACHINES_NAMED:
        return f"{placement.devices} on {machines} machines"
    return str(placement)
