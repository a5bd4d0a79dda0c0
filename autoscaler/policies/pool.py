"""A fixed pool of machines that jobs share: who is given how much, placed and told as a plan.

A job has devices of one kind at a time, of a kind that it has a model of, in whole replicas and
within its own bounds on machines. Limits beside the machines' devices are not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.domain.allocation import Placement
from autoscaler.domain.offer import Offer
from autoscaler.domain.plan import Action, Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.policies.packing import Packing
from autoscaler.policies.pool_bounds import allowed, most_devices, stages_of, whole, within

# A reason names the machines of a placement when there are no more of them.
_MACHINES_NAMED = 2


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The machines that jobs share.

    `devices` are those of all machines; `capacity` (offer id -> devices, in the order of the ids)
    is what can be given of each now: of an unavailable machine what jobs hold there.
    `types` are the instance types, by id of the offer.
    `device_kind` is what most devices are, None where there is no machine. Where there are several
    kinds, `parts` has the machines of each, as a pool of their own.
    """

    devices: int
    capacity: Mapping[str, int]
    device_kind: str | None
    parts: Mapping[str, Pool] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)

    @property
    def available(self) -> int:
        """Devices that can be given now, over all machines."""
        return sum(self.capacity.values())

    def by_kind(self) -> Mapping[str, Pool]:
        """The machines of each kind of device, by its name: all of them where there is one."""
        if self.parts or self.device_kind is None:
            return self.parts
        return {self.device_kind: self}

    def for_job(self, job: JobSnapshot) -> Mapping[str, Pool]:
        """The machines of each kind that the job may use: it has a model of it, or of none."""
        return {
            kind: part
            for kind, part in self.by_kind().items()
            if kind in job.models or not job.models
        }

    def most_of(self, job: JobSnapshot) -> int:
        """The devices of all machines, or as many as the job may have of them."""
        if not job.instances.maxima:
            return whole(job, self.devices)
        return most_devices(job, self.capacity, self.types)

    def kind_of(self, placement: Placement | None) -> str | None:
        """The kind of device of a placement; None where that has none, or several."""
        offers = {offer for offer, _ in placement.shares} if placement else set()
        kinds = (kind for kind, part in self.by_kind().items() if offers <= part.capacity.keys())
        return next(kinds, None) if offers else None

    def fewest_machines(self) -> tuple[int, ...]:
        """On how many machines 1, 2, ... all available devices lie at least."""
        largest_first = sorted(self.capacity.values(), reverse=True)
        return tuple(
            machine
            for machine, devices in enumerate(largest_first, start=1)
            for _ in range(devices)
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """How many devices a job is given, 0 for none, and by which rule: a clause for its reason.

    `kind` is the kind of device, None where any will do.
    """

    devices: int
    why: str
    kind: str | None = None


def pool_of(snapshot: Snapshot) -> Pool:
    """The shared offers of the snapshot."""
    machines = sorted((o for o in snapshot.offers if o.shared), key=lambda offer: offer.id)
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
        kind: _part([offer for offer in machines if offer.device_kind == kind], capacity)
        for kind in kinds
    }
    if len(parts) == 1:
        return parts[kinds[0]]
    usual = max(kinds, key=lambda kind: parts[kind].devices, default=None)
    types = {offer.id: offer.instance_type for offer in machines}
    return Pool(sum(part.devices for part in parts.values()), capacity, usual, parts, types)


def _part(machines: Sequence[Offer], capacity: Mapping[str, int]) -> Pool:
    """The machines of one kind."""
    return Pool(
        devices=sum(offer.devices for offer in machines),
        capacity={offer.id: capacity[offer.id] for offer in machines},
        device_kind=machines[0].device_kind,
        types={offer.id: offer.instance_type for offer in machines},
    )


def by_submission(jobs: Iterable[JobSnapshot]) -> list[JobSnapshot]:
    """First come, first; then by id."""
    return sorted(jobs, key=lambda job: (job.submitted_seconds, job.id))


def requested(job: JobSnapshot, pool: Pool) -> int:
    """The devices that a rigid job asked for, or one; never more than it may have of a kind.

    A job whose replicas are several devices is given whole ones, at least one where there is room.
    """
    most = max((part.most_of(job) for part in pool.for_job(job).values()), default=0)
    return min(whole(job, max(job.requested_devices or 1, stages_of(job))), most)


def gangs(
    queue: Iterable[JobSnapshot], pool: Pool, free: int, backfills: bool = True
) -> dict[str, int]:
    """What each job asked for where one kind has as many free, in turn; 0 where none has.

    Where not `backfills`, no job that holds nothing is given anything after the first of those
    that has to wait.
    """
    jobs = list(queue)
    turns = Turns(pool, jobs)
    given = {}
    for job in jobs:
        wanted = requested(job, pool)
        kind = turns.take(job, wanted if wanted <= free else 0)
        given[job.id] = 0 if kind is None else wanted
        free -= given[job.id]
        if kind is None and not backfills and job.placement is None:
            free = 0
    return given


class Turns:
    """Of which kind each job gets its devices, when jobs take what they get in turn.

    A job stays with the kind that it holds; others go where most is left that nobody holds, so
    that few have to leave. Whoever walks the same queue finds the same.
    """

    def __init__(self, pool: Pool, queue: Iterable[JobSnapshot]) -> None:
        self._pool = pool
        self._left = {kind: part.available for kind, part in pool.by_kind().items()}
        self._idle = Counter(self._left)
        for job in queue:
            self._hold(job, 1)

    def take(self, job: JobSnapshot, devices: int) -> str | None:
        """The kind of the devices; None of no devices, or where no kind has as many left."""
        self._hold(job, -1)
        able = [
            kind
            for kind, part in self._pool.for_job(job).items()
            if 0 < devices <= min(self._left[kind], part.most_of(job))
        ]
        if not able:
            return None
        held = self._pool.kind_of(job.placement)
        kind = held if held in able else max(able, key=lambda kind: self._idle[kind])
        self._left[kind] -= devices
        self._idle[kind] -= devices
        return kind

    def take_more(self, kind: str, devices: int) -> int:
        """As many more of a kind, or what is left of it."""
        taken = min(devices, self._left[kind])
        self._left[kind] -= taken
        self._idle[kind] -= taken
        return taken

    def _hold(self, job: JobSnapshot, sign: int) -> None:
        kind = self._pool.kind_of(job.placement)
        if kind is not None and job.placement is not None:
            self._idle[kind] -= sign * job.placement.devices


def plan_of(
    snapshot: Snapshot, pool: Pool, queue: Sequence[JobSnapshot], grants: Mapping[str, Grant]
) -> Plan:
    """The plan that gives every job its grant (job id -> grant); `queue` is as of `place`."""
    sizes = {job: grant.devices for job, grant in grants.items()}
    kinds = {job: grant.kind for job, grant in grants.items() if grant.kind is not None}
    placements = place(queue, sizes, pool, kinds)
    return plan_of_placements(snapshot, placements, {job: own.why for job, own in grants.items()})


def plan_of_placements(
    snapshot: Snapshot, placements: Mapping[str, Placement | None], reasons: Mapping[str, str]
) -> Plan:
    """The plan that puts every job where `placements` has it, as far as its bounds let it.

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
    """Where each job's devices are; the sizes (job id -> devices) together fit the pool.

    A job whose size is what it holds stays where it is; the others follow in the order of the
    queue, each on the emptiest machines of one kind, as far as those go, ties by id. `kinds`
    (job id -> kind of device) says which, of all jobs or of none; else they take turns as in
    `gangs`, and one for which no kind has as many devices gets none.

    Source: the ports of Optimus and Tiresias in the simulator of Pollux (OSDI'21).
    """
    turns, parts, packing = Turns(pool, queue), pool.by_kind(), Packing(pool.capacity)
    chosen: Mapping[str, str | None]
    chosen = kinds or {job.id: turns.take(job, sizes[job.id]) for job in queue}
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
            found = _emptiest(job, sizes[job.id], parts[kind], packing) if kind else None
            packing.take(found)
            placements[job.id] = found
    return placements


def _emptiest(job: JobSnapshot, size: int, part: Pool, packing: Packing) -> Placement | None:
    """On the emptiest machines that it may have; None where its bounds leave too little room."""
    machines = allowed(job, packing.roomiest(part.capacity), part.types)
    found = packing.emptiest(size, machines)
    is_short = found is not None and found.devices < size
    return None if is_short and job.instances.maxima else found


def _decision(job: JobSnapshot, placement: Placement | None, why: str) -> Decision:
    action = _action(job.placement, placement)
    return Decision(
        job=job.id,
        action=action,
        current=job.held,
        target=None,
        reason=f"{action.value} {_change(job, placement)}: {why}",
        placement=placement,
    )


def _action(held: Placement | None, placement: Placement | None) -> Action:
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
    held = job.placement
    if placement is None:
        return job.id if held is None else f"{job.id} without {_where(held)}"
    if held is None or held == placement:
        return f"{job.id} with {_where(placement)}"
    return f"{job.id} from {_where(held)} to {_where(placement)}"


def _where(placement: Placement) -> str:
    machines = len(placement.shares)
    if machines > _MACHINES_NAMED:
        return f"{placement.devices} on {machines} machines"
    return str(placement)
