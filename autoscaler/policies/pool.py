"""A fixed pool of machines that jobs share: who is given how much, placed and told as a plan.

Machines are taken to be alike and open to every job; limits beside their devices are not looked
at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.domain.allocation import Placement
from autoscaler.domain.plan import Action, Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot

# A reason names the machines of a placement when there are no more of them.
_MACHINES_NAMED = 2


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The machines that jobs share.

    `devices` are those of all machines; `capacity` (offer id -> devices, in the order of the ids)
    is what can be given of each now: of an unavailable machine what jobs hold there.
    `device_kind` is what most devices are, None where there is no machine.
    """

    devices: int
    capacity: Mapping[str, int]
    device_kind: str | None

    @property
    def available(self) -> int:
        """Devices that can be given now, over all machines."""
        return sum(self.capacity.values())

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
    """How many devices a job is given, 0 for none, and by which rule: a clause for its reason."""

    devices: int
    why: str


def pool_of(snapshot: Snapshot) -> Pool:
    """The shared offers of the snapshot."""
    machines = sorted((o for o in snapshot.offers if o.shared), key=lambda offer: offer.id)
    held: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for job in snapshot.jobs:
        held.update(dict(job.placement.shares if job.placement else ()))
    for offer in machines:
        kinds[offer.device_kind] += offer.devices
    capacity = {
        offer.id: min(offer.devices, held[offer.id])
        if offer.id in snapshot.unavailable
        else offer.devices
        for offer in machines
    }
    kind = max(sorted(kinds), key=lambda kind: kinds[kind], default=None)
    return Pool(sum(kinds.values()), capacity, kind)


def by_submission(jobs: Iterable[JobSnapshot]) -> list[JobSnapshot]:
    """First come, first; then by id."""
    return sorted(jobs, key=lambda job: (job.submitted_seconds, job.id))


def requested(job: JobSnapshot, pool: Pool) -> int:
    """The devices that a rigid job asked for, or one; never more than the pool has."""
    return min(job.requested_devices or 1, pool.devices)


def gangs(
    queue: Iterable[JobSnapshot], pool: Pool, free: int, backfills: bool = True
) -> dict[str, int]:
    """What each job asked for where that is still free, in turn; 0 where it is not.

    Where not `backfills`, nobody is given anything after the first who has to wait.
    """
    given = {}
    for job in queue:
        wanted = requested(job, pool)
        given[job.id] = wanted if wanted <= free else 0
        free -= given[job.id]
        if not given[job.id] and not backfills:
            free = 0
    return given


def plan_of(
    snapshot: Snapshot, pool: Pool, queue: Sequence[JobSnapshot], grants: Mapping[str, Grant]
) -> Plan:
    """The plan that gives every job its grant (job id -> grant); `queue` is as of `place`."""
    placements = place(queue, {job: grant.devices for job, grant in grants.items()}, pool)
    return plan_of_placements(snapshot, placements, {job: own.why for job, own in grants.items()})


def plan_of_placements(
    snapshot: Snapshot, placements: Mapping[str, Placement | None], reasons: Mapping[str, str]
) -> Plan:
    """The plan that puts every job where `placements` has it; each reason is a clause."""
    return Plan(
        decisions=tuple(
            _decision(job, placements[job.id], reasons[job.id])
            for job in sorted(snapshot.jobs, key=lambda job: job.id)
        ),
        shadow_prices={limit.name: 0.0 for limit in snapshot.limits},
    )


def place(
    queue: Sequence[JobSnapshot], sizes: Mapping[str, int], pool: Pool
) -> dict[str, Placement | None]:
    """Where each job's devices are; the sizes (job id -> devices) together fit the pool.

    A job whose size is what it holds stays where it is; the others follow in the order of the
    queue, each on the emptiest machines, as far as those go, ties by id.

    Source: the ports of Optimus and Tiresias in the simulator of Pollux (OSDI'21).
    """
    free = dict(pool.capacity)
    placements: dict[str, Placement | None] = {}
    for job in queue:
        held = job.placement
        if held is not None and held.devices == sizes[job.id] and _is_free(held, free):
            _take(held, free)
            placements[job.id] = held
    for job in queue:
        if job.id not in placements:
            found = _emptiest(sizes[job.id], free)
            _take(found, free)
            placements[job.id] = found
    return placements


def _is_free(placement: Placement, free: Mapping[str, int]) -> bool:
    return all(devices <= free.get(offer, 0) for offer, devices in placement.shares)


def _take(placement: Placement | None, free: dict[str, int]) -> None:
    for offer, devices in placement.shares if placement else ():
        free[offer] -= devices


def _emptiest(devices: int, free: Mapping[str, int]) -> Placement | None:
    """`free` is in the order of the ids; so are equally empty machines."""
    shares = {}
    for offer in sorted(free, key=lambda offer: -free[offer]):
        taken = min(devices, free[offer])
        if taken == 0:
            break
        shares[offer] = taken
        devices -= taken
    return Placement(tuple(sorted(shares.items()))) if shares else None


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
