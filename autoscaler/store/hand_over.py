"""Hand-over of an instance to another job of its study; no storage."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from autoscaler.domain.errors import Conflict
from autoscaler.domain.instance import (
    HANDED_OVER_FACT,
    NETWORK_FACT,
    START_FACT,
    Desired,
    HeldInstance,
    InstancePhase,
)
from autoscaler.domain.job import JobRecord
from autoscaler.domain.spending import EntryKind
from autoscaler.store.holding import (
    TAKES_INSTANCES,
    Holding,
    has_left,
    with_line,
    with_transfer,
)
from autoscaler.store.places import Place, next_place
from autoscaler.store.transfers import line_seconds


@dataclass(frozen=True, slots=True)
class HandOver:
    """An instance is to be another job's from now on, with so many of its devices at work."""

    job: str
    devices_used: int
    now_seconds: float


# What is to be known of an instance whatever job it works for.
_FACTS_OF_INSTANCE = (START_FACT, NETWORK_FACT)


def handed_over(
    holding: Holding, order: HandOver, jobs: tuple[JobRecord, JobRecord], places: Iterable[Place]
) -> Holding:
    """As an instance of another job of the same study; `places` are all that job ever had.

    `jobs` are the one that holds it and the one that is to. Their bills meet in one moment, and
    what it owes for what it has sent is the first one's.

    Raises:
        Conflict: it is not to be had, or not for this job.
    """
    held, (before, after) = holding.held, jobs
    if before.id == after.id and not has_left(held):
        return holding
    _require_free(holding, before, after)
    holding = with_transfer(holding, order.now_seconds)
    held, last = holding.held, holding.last_line
    assert last is not None, "what was launched has a bill"
    at_seconds = line_seconds(order.now_seconds, last.at_seconds)
    slot, generation = next_place(list(places))
    closed = replace(last, kind=EntryKind.CLOSE, at_seconds=at_seconds)
    # A moment later, less than is billed: should it have ended by then, it is closed at once.
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
        facts=_facts_of_instance(held) | {HANDED_OVER_FACT: str(order.now_seconds)},
    )
    return with_line(with_line(replace(holding, held=moved), closed), opened)


def _require_free(holding: Holding, before: JobRecord, after: JobRecord) -> None:
    held = holding.held
    if before.spec.study is None or before.spec.study != after.spec.study:
        raise Conflict(f"instance {held.id}: {before.id} and {after.id} are not of one study")
    if not before.phase.is_final and not has_left(held):
        raise Conflict(f"instance {held.id} is still held by job {before.id}")
    if after.phase not in TAKES_INSTANCES:
        raise Conflict(f"job {after.id} is {after.phase}: it takes no instance any more")
    leaves = held.desired is Desired.ABSENT and not has_left(held)
    if leaves or holding.termination is not None or held.phase is InstancePhase.ENDED:
        raise Conflict(f"instance {held.id} leaves: it goes to no other job")
    if held.reclaim_seconds is not None or held.joined_seconds is None:
        raise Conflict(f"instance {held.id} is taken back, or was never there")


def _facts_of_instance(held: HeldInstance) -> dict[str, str]:
    known = {fact: held.facts[fact] for fact in _FACTS_OF_INSTANCE if fact in held.facts}
    if START_FACT in known or held.training_seconds is None or held.launched_seconds is None:
        return known
    return known | {START_FACT: str(held.training_seconds - held.launched_seconds)}
