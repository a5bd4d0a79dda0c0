"""Worlds of restartable jobs in the store: formed, started and left by their instances.

Level-triggered: each tick derives the next step from the store. The world is one fact of its
leader, so that it is formed as a whole or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from autoscaler.controller.jobs.restart_reports import (
    latest_world,
    members_of,
    opened_address,
    runs_command,
)
from autoscaler.controller.jobs.worlds import Candidate, Cause, WorldNeeds, next_world
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.domain.job_world import JobWorld, WorldOpening
from autoscaler.domain.plan import Decision
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

_TAKES_PART: Final = (JobPhase.PENDING, JobPhase.RUNNING)
_SILENCE_SECONDS: Final = 60.0
"""Time beyond the grace after which a start no longer waits for an instance that is silent."""
_UNORDERED: Final = (InstancePhase.REQUESTED, InstancePhase.QUEUED)


class Restarts:
    """Reconciler of restartable jobs' worlds with their instances."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def keep_up(
        self, job: JobRecord, instances: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Form the job's next world if it is time, let it start, and release who left it.

        `instances` are those that have not ended.
        """
        restart = job.spec.restart
        if restart is None or job.phase not in _TAKES_PART:
            return
        all_instances = self._store.instances.of_job(job.id, include_ended=True)
        if any(held.completed_seconds is not None for held in all_instances):
            return
        world = latest_world(all_instances)
        formed = next_world(world, world_needs(job, instances, world), now_seconds)
        if formed is not None:
            world = self._form(job, *formed, world, instances)
        elif world is not None and world.members:
            self._open(world, job, instances, now_seconds)
        for held in instances:
            is_member = world is not None and held.id in world.members
            if held.leaves_world_seconds is not None and not is_member:
                self._store.instances.release(held.id, now_seconds)

    def leave_surplus(
        self, decision: Decision, instances: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Let the instances that the decision does not include leave at the next checkpoint.

        Instances that do not run the command are released at once. All are released at once if
        the job gets nothing, or if the limits leave no room for new instances beside them.
        """
        wanted = [held for held in instances if held.desired is Desired.PRESENT]
        all_instances = self._store.instances.of_job(decision.job, include_ended=True)
        world = latest_world(all_instances)
        leader = world.members[0] if world is not None and world.members else None
        surplus = {held.id for held in surplus_of(decision, wanted, leader)}
        is_forced = decision.target is None or decision.release_first
        for held in wanted:
            is_member = world is not None and held.id in world.members
            leaves = held.leaves_world_seconds is not None
            if held.id in surplus and (is_forced or not is_member):
                self._store.instances.release(held.id, now_seconds)
            elif held.id in surplus and not leaves:
                self._store.instances.note(held.id, {Fact.LEAVES_WORLD: str(now_seconds)})
            elif held.id not in surplus and leaves:
                self._store.instances.note(held.id, {Fact.LEAVES_WORLD: ""})

    def _form(
        self,
        job: JobRecord,
        world: JobWorld,
        cause: Cause,
        before: JobWorld | None,
        instances: Sequence[HeldInstance],
    ) -> JobWorld:
        """Store the next world, and record an event."""
        holder = world.members[0] if world.members else _holder(before, instances)
        if holder is None:
            return world  # no instance is left that could hold the fact; the next one will
        self._store.instances.note(holder, {Fact.WORLD: str(world)})
        text = restart_text(world, cause, before)
        _log.info("%s restart: %s", job.id, text, extra={"job": job.id})
        self._store.events.add(Event(world.formed_seconds, "restart", text, job.id))
        return world

    def _open(
        self,
        world: JobWorld,
        job: JobRecord,
        instances: Sequence[HeldInstance],
        now_seconds: float,
    ) -> None:
        """Let the world start once all members are ready and no other instance still runs.

        An instance that is no member and does not answer delays the start by the grace and
        `_SILENCE_SECONDS` at most.
        """
        members = members_of(world, instances)
        are_ready = len(members) == len(world.members) and all(
            held.phase is InstancePhase.READY for held in members
        )
        report = members[0].world_report if members else None
        if not are_ready or report is None or report.rendezvous is None:
            return
        if opened_address(world, members) is not None:
            return
        assert job.spec.restart is not None
        patience_seconds = job.spec.restart.grace_seconds + _SILENCE_SECONDS
        is_overdue = now_seconds - world.formed_seconds >= patience_seconds
        if not is_overdue and any(map(runs_command, instances)):
            return
        opening = WorldOpening(world.generation, report.rendezvous)
        self._store.instances.note(members[0].id, {Fact.WORLD_OPENING: str(opening)})


def world_needs(
    job: JobRecord, instances: Sequence[HeldInstance], world: JobWorld | None
) -> WorldNeeds:
    """Return the state of a job for `next_world`; `instances` are those that have not ended."""
    restart = job.spec.restart
    assert restart is not None
    members = [] if world is None else members_of(world, instances)
    generation = 0 if world is None else world.generation
    reports = [held.world_report for held in members if held.world_report is not None]
    present = [report for report in reports if report.generation == generation]
    saves = [held.world_save for held in members[:1]]
    offer = _offer_of(members, instances)
    return WorldNeeds(
        attempt=job.attempt,
        minimum=job.spec.instances.minimum,
        candidates=tuple(
            _candidate(held, held.offer == offer) for held in instances if _is_alive(held)
        ),
        grace_seconds=restart.grace_seconds,
        wait_seconds=restart.wait_seconds,
        start_seconds=job.retry_seconds or 0.0,
        saved_seconds=next(
            (save.seconds for save in saves if save and save.generation == generation), None
        ),
        has_begun=bool(present),
        over_seconds=min((report.seconds for report in present if report.is_over), default=None),
    )


def surplus_of(
    decision: Decision, wanted: Sequence[HeldInstance], leader: str | None
) -> list[HeldInstance]:
    """Return the wanted instances of a job that the decision does not include.

    Instances of other offers stay until all of the target's are ready, unless the limits leave no
    room for both.
    """
    target = decision.target
    if target is None:
        return list(wanted)
    alike = [held for held in wanted if held.offer == target.offer]
    others = [held for held in wanted if held.offer != target.offer]
    ready = [held for held in alike if held.world_ready_seconds is not None]
    is_target_ready = len(ready) >= target.instances
    surplus = _release_order(alike, leader)[: max(len(alike) - target.instances, 0)]
    return surplus + [
        held
        for held in others
        if is_target_ready or decision.release_first or held.phase in _UNORDERED
    ]


def restart_text(world: JobWorld, cause: Cause, before: JobWorld | None) -> str:
    """Return the text of the event of a new world."""
    count = len(world.members)
    size = "stands still" if not count else f"start {world.generation} on {_instances(count)}"
    if before is None or not before.members:
        return f"{size}: {cause}"
    return f"{size}, before on {_instances(len(before.members))}: {cause}"


def _instances(count: int) -> str:
    return "1 instance" if count == 1 else f"{count} instances"


def _offer_of(members: Sequence[HeldInstance], instances: Sequence[HeldInstance]) -> str | None:
    """Return the offer whose instances may be members of the next world; None for none.

    It is the leader's offer until the plan wants none of it any more: a move to another offer is
    one restart, once all new instances are ready.
    """
    wanted = [held.offer for held in instances if _is_wanted(held)]
    for held in members[:1]:
        if held.offer in wanted:
            return held.offer
    return max(sorted(set(wanted)), key=wanted.count, default=None)


def _is_wanted(held: HeldInstance) -> bool:
    return held.desired is Desired.PRESENT and held.leaves_world_seconds is None


def _candidate(held: HeldInstance, is_of_offer: bool) -> Candidate:
    leaves_seconds = held.leaves_world_seconds
    is_wanted = is_of_offer and _is_wanted(held)
    differs_seconds = leaves_seconds or held.draining_seconds or held.world_ready_seconds or 0.0
    return Candidate(
        held.id, is_wanted, held.world_ready_seconds, held.reclaim_seconds, differs_seconds
    )


def _is_alive(held: HeldInstance) -> bool:
    """Return whether an instance may take part in a world, at least until it is reclaimed."""
    if held.phase in (*_UNORDERED, InstancePhase.DRAINED, InstancePhase.ENDED):
        return False
    return held.desired is Desired.PRESENT or held.reclaim_seconds is not None


def _holder(before: JobWorld | None, instances: Sequence[HeldInstance]) -> str | None:
    """Return the instance that holds a world without members; None if no instance is left."""
    members = [] if before is None else members_of(before, instances)
    return next((held.id for held in (*members, *instances)), None)


def _release_order(instances: Sequence[HeldInstance], leader: str | None) -> list[HeldInstance]:
    """Return instances in the order in which to release them.

    Leaving instances are first, then instances that are not ready, then the youngest. The leader
    is last of the others, because it has the checkpoint on its disk.
    """
    return sorted(
        instances,
        key=lambda held: (
            held.leaves_world_seconds is None,
            held.world_ready_seconds is not None,
            held.id == leader,
            -held.requested_seconds,
            held.id,
        ),
    )
