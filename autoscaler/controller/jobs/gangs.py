"""Gangs of a job, from the seats of its instances: whole ones, broken ones, and their next start.

A gang is ordered, started, drained and lost as one unit. It never gets another member: the next
order makes a new gang.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from autoscaler.domain.facts import Fact
from autoscaler.domain.gang import GangPlace, GangStart
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.job import InstanceBounds, JobSpec, ParallelismSpec
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import TrainingReport

LONGEST_PART_SECONDS = 720.0
"""Longest time for which part of a gang has capacity and waits for the rest.

Partial sets of a job without gangs cost at most 12 minutes of an hour, too.
"""

_NO_START = GangStart(1, is_over=False)
_STARTED = (InstancePhase.STARTING, InstancePhase.TRAINING)


@dataclass(frozen=True, slots=True)
class Gang:
    """Instances of one gang that have not ended, by index; the size is that at the order."""

    number: int
    size: int
    members: tuple[HeldInstance, ...]

    @property
    def wanted(self) -> tuple[HeldInstance, ...]:
        """Members that the controller keeps."""
        return tuple(held for held in self.members if held.desired is Desired.PRESENT)

    @property
    def is_whole(self) -> bool:
        """Whether the controller keeps all members."""
        return len(self.wanted) == self.size

    @property
    def trains(self) -> bool:
        """Whether all members train."""
        training = [held for held in self.wanted if held.phase is InstancePhase.TRAINING]
        return len(training) == self.size

    @property
    def generation(self) -> int:
        """Generation of the gang's present or next start."""
        return max((held.gang_start or _NO_START).next_generation for held in self.members)

    @property
    def address(self) -> str | None:
        """Address of the rendezvous; None until all members are ready or have started there."""
        if not self.is_whole or not all(map(self._has_come, self.wanted)):
            return None
        return self.members[0].rendezvous

    def _has_come(self, held: HeldInstance) -> bool:
        start = held.gang_start
        has_started = start is not None and start == GangStart(self.generation, is_over=False)
        is_at_work = has_started and held.phase in _STARTED
        return is_at_work or held.phase is InstancePhase.READY

    def has_waited_seconds(self, now_seconds: float) -> float:
        """Return for how long some members have had capacity while others wait in a queue."""
        launched = [
            held.launched_seconds for held in self.wanted if held.launched_seconds is not None
        ]
        if not launched or len(launched) == self.size:
            return 0.0
        return now_seconds - min(launched)


def gangs_of(instances: Iterable[HeldInstance]) -> tuple[Gang, ...]:
    """Return the gangs of one job's instances that have not ended, by number."""
    members: dict[tuple[int, int], list[HeldInstance]] = {}
    for held in instances:
        if held.seat is not None and held.phase is not InstancePhase.ENDED:
            members.setdefault((held.seat.number, held.seat.instances), []).append(held)
    return tuple(
        Gang(number, size, tuple(sorted(members[number, size], key=_index)))
        for number, size in sorted(members)
    )


def gang_of(held: HeldInstance, instances: Iterable[HeldInstance]) -> Gang | None:
    """Return the gang of an instance that has not ended; None without one."""
    seat = held.seat
    if seat is None:
        return None
    return next((gang for gang in gangs_of(instances) if gang.number == seat.number), None)


def place_of(held: HeldInstance, instances: Iterable[HeldInstance]) -> GangPlace | None:
    """Return the place of an instance in the next or present start of its gang; None without one.

    `instances` are all of its job.
    """
    gang = gang_of(held, instances)
    if gang is None or held.seat is None:
        return None
    name = f"{held.job}.{gang.number}"
    return GangPlace(name, gang.generation, held.seat.index, gang.size, gang.address)


def start_facts(held: HeldInstance, start: GangStart, rendezvous: str | None) -> dict[str, str]:
    """Return the new facts of a member from its report; none for an instance without a gang.

    Generation 0 of `start` is a script that was not started yet.
    """
    if held.seat is None:
        return {}
    start_text = str(start) if start.generation else ""
    reported: dict[str, str] = {Fact.GANG_START: start_text, Fact.RENDEZVOUS: rendezvous or ""}
    return {key: text for key, text in reported.items() if held.facts.get(key, "") != text}


def in_instances(report: TrainingReport, held: HeldInstance) -> TrainingReport:
    """Return the report of an instance with counts of instances instead of replicas.

    A gang is one replica of the training, and plans count its instances.
    """
    if held.seat is None:
        return report
    size = held.seat.instances
    return replace(
        report,
        replicas=report.replicas * size,
        observations=tuple(
            replace(observed, instances=min(observed.instances * size, observed.devices))
            for observed in report.observations
        ),
        pauses=tuple(
            replace(
                pause,
                replicas_before=pause.replicas_before * size,
                replicas_after=pause.replicas_after * size,
            )
            for pause in report.pauses
        ),
    )


def phase_in_gang(
    held: HeldInstance, phase: InstancePhase, instances: Iterable[HeldInstance]
) -> InstancePhase:
    """Return the phase of an instance that reports `phase`: a follower trains with its leader.

    `instances` are all of its job. Only the leader of a gang knows of steps.
    """
    gang = gang_of(held, instances)
    if gang is None or not gang.is_whole or phase is not InstancePhase.STARTING:
        return phase
    leader = gang.members[0]
    trains = leader.id != held.id and leader.phase is InstancePhase.TRAINING
    return leader.phase if trains else phase


def broken_gangs(instances: Iterable[HeldInstance], now_seconds: float) -> tuple[Gang, ...]:
    """Return the gangs to give back that still have wanted members.

    They have lost a member, or some members have waited too long for the capacity of others.
    """
    return tuple(
        gang
        for gang in gangs_of(instances)
        if gang.wanted
        and (not gang.is_whole or gang.has_waited_seconds(now_seconds) >= LONGEST_PART_SECONDS)
    )


def surplus_members(
    instances: Sequence[HeldInstance], target: int, size: int
) -> tuple[HeldInstance, ...]:
    """Return the wanted instances of one offer to release, so that whole gangs are left.

    At most `target` instances stay. Instances outside whole gangs of `size` go first, then gangs
    that do not train, then the youngest.
    """
    gangs = [gang for gang in gangs_of(instances) if gang.is_whole and gang.size == size]
    kept = sorted(gangs, key=_release_key, reverse=True)[: target // size]
    kept_ids = {held.id for gang in kept for held in gang.wanted}
    return tuple(
        held for held in instances if held.desired is Desired.PRESENT and held.id not in kept_ids
    )


def missing_gangs(instances: Sequence[HeldInstance], target: int, size: int) -> int:
    """Return how many whole gangs of `size` are to be ordered for `target` instances.

    `instances` are the wanted ones of the offer.
    """
    return max((target - len(instances)) // size, 0)


def next_number(instances: Iterable[HeldInstance]) -> int:
    """Return the number of the next gang; `instances` are all that the job ever had."""
    return 1 + max((held.seat.number for held in instances if held.seat is not None), default=0)


def gang_size(spec: JobSpec, devices_used: int) -> int | None:
    """Return the instances of one gang of a job; None if they can't hold whole copies.

    The instances of a restartable job are one world, of any size.
    """
    return 1 if spec.restart is not None else spec.parallelism.gang_of(devices_used)


def bounds_of_one_gang(
    bounds: InstanceBounds, parallelism: ParallelismSpec, offers: Sequence[Offer]
) -> InstanceBounds:
    """Return bounds of one gang on each offer, for a script that trains in one world only."""
    gangs = {offer.id: parallelism.gang_on(offer) for offer in offers}
    sizes = {offer: gang for offer, gang in gangs.items() if gang is not None}
    maximum = max(sizes.values(), default=1)
    return replace(bounds, minimum=1, maximum=maximum, maxima=tuple(sorted(sizes.items())))


def _index(held: HeldInstance) -> int:
    return 0 if held.seat is None else held.seat.index


def _release_key(gang: Gang) -> tuple[bool, float, int]:
    requested_seconds = min(held.requested_seconds for held in gang.wanted)
    return gang.trains, -requested_seconds, -gang.number
