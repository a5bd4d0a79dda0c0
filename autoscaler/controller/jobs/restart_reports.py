"""Reports of agents of restartable jobs, and the place of each instance in its job's world."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from autoscaler.domain.facts import Fact
from autoscaler.domain.gang import GangPlace
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job_world import GenerationTime, JobWorld, MemberReport, WorldSave
from autoscaler.store.repositories.measurements import (
    RESTART_DURATION,
    SAVE_INTERVAL_DURATION,
)

_AT_WORK = (
    InstancePhase.PREPARING,
    InstancePhase.STARTING,
    InstancePhase.TRAINING,
    InstancePhase.DRAINING,
)


@dataclass(frozen=True, slots=True)
class AgentReport:
    """Part of a heartbeat that concerns the world of a restartable job.

    `saved` names the newest checkpoint of the start with this `generation`; None without one.
    """

    phase: InstancePhase
    generation: int
    is_generation_over: bool
    rendezvous: str | None
    saved: str | None


def world_facts(held: HeldInstance, report: AgentReport, now_seconds: float) -> dict[str, str]:
    """Return the new facts of an instance of a restartable job that reports now."""
    generation = report.generation
    facts: dict[str, str] = {}
    member_report = MemberReport(
        generation, report.is_generation_over, report.rendezvous, now_seconds
    )
    if not member_report.is_same(held.world_report):
        facts[Fact.WORLD_REPORT] = str(member_report)
    if report.phase is InstancePhase.READY and held.world_ready_seconds is None:
        facts[Fact.WORLD_READY] = str(now_seconds)
    begun, save = held.world_begun, held.world_save
    is_begun = begun is not None and begun.generation == generation
    if report.phase is InstancePhase.TRAINING and generation and not is_begun:
        facts[Fact.WORLD_BEGUN] = str(GenerationTime(generation, now_seconds))
    is_known = save is not None and (save.generation, save.name) == (generation, report.saved)
    if report.saved is not None and generation and not is_known:
        facts[Fact.WORLD_SAVE] = str(WorldSave(generation, now_seconds, report.saved))
    return facts


def measured_durations(
    before: HeldInstance, after: HeldInstance, world: JobWorld | None
) -> dict[str, float]:
    """Return the seconds by name of durations that ended with the last report of an instance.

    They are a restart, from the order to stop until the first progress afterwards, and the time
    between two checkpoints. Both are known on the instance that leads the world.
    """
    if world is None or not world.members or world.members[0] != after.id:
        return {}
    durations: dict[str, float] = {}
    begun, save = after.world_begun, after.world_save
    is_begun = begun is not None and begun.generation == world.generation
    if begun is not None and is_begun and begun != before.world_begun:
        durations[RESTART_DURATION] = begun.seconds - world.formed_seconds
    if save is None or save.generation != world.generation or save == before.world_save:
        return durations
    earlier = before.world_save
    if earlier is not None and earlier.generation == world.generation:
        durations[SAVE_INTERVAL_DURATION] = save.seconds - earlier.seconds
    elif begun is not None and is_begun:
        durations[SAVE_INTERVAL_DURATION] = save.seconds - begun.seconds
    return durations


def latest_world(instances: Iterable[HeldInstance]) -> JobWorld | None:
    """Return the present world of a job; None before the first.

    `instances` are all that the job ever had.
    """
    worlds = (held.world for held in instances)
    return max(
        (world for world in worlds if world is not None),
        key=lambda world: world.generation,
        default=None,
    )


def place_in(world: JobWorld | None, held: HeldInstance, address: str | None) -> GangPlace | None:
    """Return the place of an instance in the present world; None if it is no member.

    `address` is that of the rendezvous, None until the members may start.
    """
    if world is None or held.id not in world.members:
        return None
    index = world.members.index(held.id)
    return GangPlace(held.job, world.generation, index, len(world.members), address)


def opened_address(world: JobWorld | None, instances: Iterable[HeldInstance]) -> str | None:
    """Return the rendezvous of the present world once its members may start; None before."""
    if world is None:
        return None
    openings = (held.world_opening for held in instances)
    return next(
        (
            opening.address
            for opening in openings
            if opening is not None and opening.generation == world.generation
        ),
        None,
    )


def runs_command(held: HeldInstance) -> bool:
    """Return whether the command of some world may still run on an instance."""
    report = held.world_report
    has_started = report is not None and report.generation > 0 and not report.is_over
    return has_started and held.phase in _AT_WORK


def members_of(world: JobWorld, instances: Collection[HeldInstance]) -> list[HeldInstance]:
    """Return the members of a world among these instances, the leader first."""
    by_id = {held.id: held for held in instances}
    return [by_id[member] for member in world.members if member in by_id]
