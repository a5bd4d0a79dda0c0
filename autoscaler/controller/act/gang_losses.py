"""Return of gangs that have lost a member, or part of which waits too long for the rest.

Level-triggered: each tick looks for broken gangs in the store, so that a tick that was cut short
leaves no part of a gang. The next plan orders whole gangs in their place.
"""

from __future__ import annotations

import logging
from typing import Final

from autoscaler.controller.act.job_end import is_over
from autoscaler.controller.jobs.gangs import LONGEST_PART_SECONDS, Gang, broken_gangs
from autoscaler.domain.errors import InsufficientCapacity
from autoscaler.domain.gang import GANG_GIVEN_BACK
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import JobRecord
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

_HOUR_SECONDS: Final = 3600.0
_NEVER_JOINED: Final = (InstancePhase.REQUESTED, InstancePhase.QUEUED, InstancePhase.BOOTING)


class GangLosses:
    """Releaser of the wanted members of broken gangs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def keep_up(self, job: JobRecord, now_seconds: float) -> None:
        """Give the job's broken gangs back, and record why."""
        instances = self._store.instances.of_job(job.id)
        broken = broken_gangs(instances, now_seconds)
        if not broken:
            return
        all_instances = self._store.instances.of_job(job.id, include_ended=True)
        is_ending = is_over(job, all_instances)
        for gang in broken:
            for held in gang.wanted:
                self._give_back(held, now_seconds)
            if is_ending:  # members whose part is done are not lost
                continue
            text = _text(gang, all_instances)
            if gang.is_whole:
                self._refuse_offer(gang, text, now_seconds)
            _log.info("%s %s: %s", job.id, GANG_GIVEN_BACK, text, extra={"job": job.id})
            self._store.events.add(Event(now_seconds, GANG_GIVEN_BACK, text, job.id))

    def _give_back(self, held: HeldInstance, now_seconds: float) -> None:
        """Release a member; one that has not joined has nothing to save, and is ended at once."""
        if held.phase in _NEVER_JOINED:
            self._store.instances.request_termination(held.id, now_seconds)
        else:
            self._store.instances.release(held.id, now_seconds)

    def _refuse_offer(self, gang: Gang, text: str, now_seconds: float) -> None:
        """Back off from the offer, which has no capacity for a whole gang, for the rest of 1 h."""
        offer, kind = gang.wanted[0].offer, InsufficientCapacity.__name__
        until_seconds = now_seconds + _HOUR_SECONDS - LONGEST_PART_SECONDS
        self._store.capacity.refused(offer, kind, now_seconds, until_seconds, text)


def _text(gang: Gang, all_instances: tuple[HeldInstance, ...]) -> str:
    """Return why the gang is given back; `all_instances` are all that the job ever had."""
    kept = len(gang.wanted)
    rest = f"its other {kept} of {gang.size} instances are" if kept > 1 else "the other one is"
    if gang.is_whole:
        launched = [held for held in gang.wanted if held.launched_seconds is not None]
        return (
            f"gang {gang.number}: {len(launched)} of {gang.size} instances had capacity for "
            f"{LONGEST_PART_SECONDS / 60:.0f} min while the rest waited; all are given back"
        )
    wanted = {held.id for held in gang.wanted}
    lost = [
        held.id
        for held in all_instances
        if held.seat is not None and held.seat.number == gang.number and held.id not in wanted
    ]
    names = ", ".join(lost) or "a member that was never ordered"
    return f"gang {gang.number} lost {names}: {rest} given back"
