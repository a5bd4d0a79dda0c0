"""Hand-over of an instance to another job of the same study; no storage."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from autoscaler.domain.errors import Conflict
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import (
    Desired,
    HeldInstance,
    InstancePhase,
)
from autoscaler.domain.job import JobRecord
from autoscaler.domain.spending import EntryKind
from autoscaler.store.records.holding import (
    TAKES_INSTANCES,
    Holding,
    has_left,
    with_line,
    with_transfer,
)
from autoscaler.store.records.places import Place, next_place
from autoscaler.store.records.transfers import line_seconds


@dataclass(frozen=True, slots=True)
class HandOver:
    """Request to move an instance to `job`, which uses `devices_used` of its devices."""

    job: str
    devices_used: int
    now_seconds: float


# Facts that an instance keeps when it moves to another job.
_FACTS_OF_INSTANCE = (Fact.START, Fact.NETWORK)


def handed_over(
    holding: Holding, order: HandOver, jobs: tuple[JobRecord, JobRecord], places: Iterable[Place]
) -> Holding:
    """Return the holding with its instance moved to another job of the same study.

    The bill of the first job ends where the bill of the second begins. The first job pays for
    unbilled transfers. Nothing changes if the instance works for the job already.

    Args:
        holding: the instance with its calls and bill.
        order: the request.
        jobs: the job that holds the instance, and the job that gets it.
        places: all slots and generations that the second job has used so far.

    Raises:
        Conflict: the instance can't be moved, or not to this job.
    """
    held, (before, after) = holding.held, jobs
    if before.id == after.id and not has_left(held):
        return holding
    _require_free(holding, before, after)
    holding = with_transfer(holding, order.now_seconds)
    held, last = holding.held, holding.last_line
    assert last is not None, "a launched instance has a bill"
    at_seconds = line_seconds(order.now_seconds, last.at_seconds)
    slot, generation = next_place(list(places))
    closed = replace(last, kind=EntryKind.CLOSE, at_seconds=at_seconds)
    # The next float: if the instance has ended in the cloud, the new job pays nothing.
    opened = replace(last, job=after.id, at_seconds=math.nextafter(at_seconds, math.inf))
    moved = replace(
        held,
        job=after.id,
        slot=slot,
        generation=generation,
        devices_used=order.devices_used,
        desired=Desired.PRESENT,
        phase=InstancePhase.PREPARING,
        requested_seconds=order.now_seconds,
        training_seconds=None,
        draining_seconds=None,
        transfer=replace(held.transfer, before=before.id),
        facts=_facts_of_instance(held) | {Fact.HANDED_OVER: str(order.now_seconds)},
    )
    return with_line(with_line(replace(holding, held=moved), closed), opened)


def _require_free(holding: Holding, before: JobRecord, after: JobRecord) -> None:
    held = holding.held
    if before.spec.study is None or before.spec.study != after.spec.study:
        raise Conflict(
            f"instance {held.id}: {before.id} and {after.id} belong to different studies"
        )
    if not before.phase.is_final and not has_left(held):
        raise Conflict(f"instance {held.id} is still held by job {before.id}")
    if after.phase not in TAKES_INSTANCES:
        raise Conflict(f"job {after.id} is {after.phase}: it takes no more instances")
    is_ending = held.desired is Desired.ABSENT and not has_left(held)
    if is_ending or holding.termination is not None or held.phase is InstancePhase.ENDED:
        raise Conflict(f"instance {held.id} is ending: it can't move to another job")
    if held.reclaim_seconds is not None or held.joined_seconds is None:
        raise Conflict(f"instance {held.id} is being reclaimed, or has never joined")


def _facts_of_instance(held: HeldInstance) -> dict[str, str]:
    known: dict[str, str] = {
        fact: held.facts[fact] for fact in _FACTS_OF_INSTANCE if fact in held.facts
    }
    if Fact.START in known or held.training_seconds is None or held.launched_seconds is None:
        return known
    return known | {Fact.START: str(held.training_seconds - held.launched_seconds)}
