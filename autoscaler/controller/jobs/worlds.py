"""Worlds of restartable jobs: which instances run the command together, and since when.

All instances of a restartable job form one torchrun world. A change of its members is a restart
of the command on all of them, from its last checkpoint. So a change waits until the new instances
are prepared and the command has just saved its state. A world that lost a member restarts at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from autoscaler.domain.job_world import JobWorld

FRESH_SECONDS: Final = 15.0
"""Age up to which a checkpoint is new, so that a restart loses next to nothing."""
GATHER_SECONDS: Final = 180.0
"""Longest wait of prepared instances for those that still boot, in seconds."""
SETTLE_SECONDS: Final = 3.0
"""Time for reports of lost instances or failures, after a world has ended, in seconds."""
STOP_MARGIN_SECONDS: Final = 10.0
"""Time to copy the last checkpoint before an instance is reclaimed, in seconds."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Living instance that may be a member of the next world.

    `prepared_seconds` is when it was ready for the command, None before. `is_wanted`: the plan
    keeps it. The command there must have stopped at `end_seconds`, None without such a limit.
    `differs_seconds` is since when the plan wants it in or out of the world.
    """

    id: str
    is_wanted: bool
    prepared_seconds: float | None
    end_seconds: float | None = None
    differs_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WorldNeeds:
    """State of a restartable job, for the choice of its next world.

    `start_seconds` is the earliest time of a start of this `attempt`. `saved_seconds` is when the
    present world's newest checkpoint was reported, None before the first. `has_begun`: the
    command of the present world was started. `over_seconds` is when an instance reported that the
    command of the present world has ended without completing the job, None if none did.
    `grace_seconds` and `wait_seconds` are as in `RestartSpec`.
    """

    attempt: int
    minimum: int
    candidates: tuple[Candidate, ...]
    grace_seconds: float
    wait_seconds: float
    start_seconds: float = 0.0
    saved_seconds: float | None = None
    has_begun: bool = False
    over_seconds: float | None = None


class Cause(StrEnum):
    """Cause of a new world."""

    START = "start"
    RETRY = "retry after a failure"
    LOSS = "an instance was lost"
    ENDED = "the command ended on an instance"
    RECLAIM = "an instance is taken back"
    SAVED = "new size, after a checkpoint"
    UNSTARTED = "new size, before the command began"
    WAITED = "new size, as no checkpoint came in time"
    TOO_FEW = "fewer instances than the minimum are left"


def next_world(
    world: JobWorld | None, needs: WorldNeeds, now_seconds: float
) -> tuple[JobWorld, Cause] | None:
    """Return the world to form now, with the cause; None if the present one stays."""
    wanted = [candidate for candidate in needs.candidates if candidate.is_wanted]
    ready = _ready_members(world, wanted)
    has_members = world is not None and bool(world.members)
    if world is None or not has_members:
        return _first_world(world, needs, ready, now_seconds)
    cause = _forced_cause(world, needs, now_seconds)
    if cause is None:
        cause = _chosen_cause(world, needs, ready, now_seconds)
        if cause is None or len(ready) < needs.minimum:
            return None
    if len(ready) < needs.minimum:
        return _formed(world, needs, (), now_seconds), Cause.TOO_FEW
    if cause is Cause.RETRY and now_seconds < needs.start_seconds:
        return None
    return _formed(world, needs, ready, now_seconds), cause


def _ready_members(world: JobWorld | None, wanted: Collection[Candidate]) -> tuple[str, ...]:
    """Return the prepared candidates: members of the present world first, in their order.

    The command's files are on the leader, so that a leader that stays needs no download.
    """
    ready = {candidate.id for candidate in wanted if candidate.prepared_seconds is not None}
    stay = tuple(member for member in (world.members if world else ()) if member in ready)
    return (*stay, *sorted(ready.difference(stay)))


def _first_world(
    world: JobWorld | None, needs: WorldNeeds, ready: Sequence[str], now_seconds: float
) -> tuple[JobWorld, Cause] | None:
    """Return the first world, or the first one after too few instances were left."""
    if not ready or len(ready) < needs.minimum or now_seconds < needs.start_seconds:
        return None
    if not _has_gathered(needs.candidates, now_seconds):
        return None
    return _formed(world, needs, tuple(ready), now_seconds), Cause.START


def _forced_cause(world: JobWorld, needs: WorldNeeds, now_seconds: float) -> Cause | None:
    """Return why the present world can't continue; None if it can."""
    if needs.attempt != world.attempt:
        return Cause.RETRY
    alive = {candidate.id: candidate for candidate in needs.candidates}
    if any(member not in alive for member in world.members):
        return Cause.LOSS
    if needs.over_seconds is not None and now_seconds - needs.over_seconds >= SETTLE_SECONDS:
        return Cause.ENDED
    notice_seconds = needs.grace_seconds + STOP_MARGIN_SECONDS
    ends = (alive[member].end_seconds for member in world.members)
    if any(end is not None and now_seconds >= end - notice_seconds for end in ends):
        return Cause.RECLAIM
    return None


def _chosen_cause(
    world: JobWorld, needs: WorldNeeds, ready: Sequence[str], now_seconds: float
) -> Cause | None:
    """Return why now is the time for another size; None if it is not, or the size stays."""
    changed = set(ready).symmetric_difference(world.members)
    if not changed or needs.over_seconds is not None:
        return None
    if not needs.has_begun:
        return Cause.UNSTARTED
    new = [candidate for candidate in needs.candidates if candidate.id not in world.members]
    if not _has_gathered(new, now_seconds):
        return None
    if needs.saved_seconds is not None and now_seconds - needs.saved_seconds <= FRESH_SECONDS:
        return Cause.SAVED
    since_seconds = max(
        world.formed_seconds,
        min(
            candidate.differs_seconds for candidate in needs.candidates if candidate.id in changed
        ),
    )
    return Cause.WAITED if now_seconds - since_seconds >= needs.wait_seconds else None


def _has_gathered(candidates: Collection[Candidate], now_seconds: float) -> bool:
    """Return whether all wanted candidates are prepared, or the first has waited long enough."""
    wanted = [candidate for candidate in candidates if candidate.is_wanted]
    prepared = [c.prepared_seconds for c in wanted if c.prepared_seconds is not None]
    if len(prepared) == len(wanted):
        return True
    return bool(prepared) and now_seconds - min(prepared) >= GATHER_SECONDS


def _formed(
    world: JobWorld | None, needs: WorldNeeds, members: tuple[str, ...], now_seconds: float
) -> JobWorld:
    generation = 1 if world is None else world.generation + 1
    return JobWorld(generation, needs.attempt, now_seconds, members)
