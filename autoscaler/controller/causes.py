"""What asks for other decisions than those that are being carried out: the cause of a resize.

Causes are an arrival, an end, a loss, other terms of a job, a price, a limit, and a first
measurement of a size. Time, progress and better estimates of what was measured are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase, by_job
from autoscaler.domain.snapshot import Snapshot
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class _Start:
    """Instances of a job of which some are new, and the number of causes before their order."""

    instances: frozenset[tuple[str, int]]
    causes: int


class Causes:
    """The number of causes so far, and how many there were when each job's instances started."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: object = None
        self._count = 0
        self._wanted: frozenset[str] = frozenset()
        self._starts: dict[str, _Start] = {}

    def undisturbed(self, snapshot: Snapshot, alive: Sequence[HeldInstance]) -> frozenset[str]:
        """Return the jobs that keep what they hold, unless a cause asks for another decision.

        These are the jobs whose instances start, and those whose instances have trained for less
        time than they took to start, if nothing has happened since the order.
        """
        before = self._count
        self._count += self._is_caused(snapshot, alive)
        starts = {}
        for job, instances in by_job(alive).items():
            wanted = [held for held in instances if _is_kept(held)]
            if not any(_is_new(held, snapshot.now_seconds) for held in wanted):
                continue
            held_now = frozenset((held.id, held.devices_used) for held in wanted)
            known = self._starts.get(job)
            is_known = known is not None and known.instances == held_now
            starts[job] = known if known and is_known else _Start(held_now, before)
        self._starts = starts
        return frozenset(job for job, start in starts.items() if start.causes == self._count)

    def _is_caused(self, snapshot: Snapshot, alive: Iterable[HeldInstance]) -> bool:
        """Take in the moment, and return whether something in it asks for another decision."""
        wanted = frozenset(held.id for held in alive if held.desired is Desired.PRESENT)
        is_lost = any(self._was_lost(instance) for instance in self._wanted - wanted)
        seen = causes_in(snapshot)
        is_news = self._seen is not None and seen != self._seen
        self._seen, self._wanted = seen, wanted
        return is_lost or is_news

    def _was_lost(self, instance: str) -> bool:
        held = self._store.instances.get(instance)
        is_over = held.phase is InstancePhase.ENDED or held.reclaim_seconds is not None
        return is_over and (held.desired is Desired.PRESENT or held.reclaim_seconds is not None)


def causes_in(snapshot: Snapshot) -> tuple[object, ...]:
    """Return what of a snapshot, if it changes, is a cause to decide otherwise."""
    jobs = tuple(
        (
            job.id,
            job.objective,
            job.instances,
            job.weight,
            frozenset((kind, model.measured) for kind, model in job.models.items()),
        )
        for job in snapshot.jobs
    )
    offers = tuple((offer.id, offer.usd_per_hour, offer.devices) for offer in snapshot.offers)
    return jobs, offers, snapshot.limits


def _is_new(held: HeldInstance, now_seconds: float) -> bool:
    """Return whether the instance has trained for less time than it took to start."""
    if held.training_seconds is None:
        return True
    start_seconds = held.training_seconds - held.requested_seconds
    return now_seconds - held.training_seconds < start_seconds


def _is_kept(held: HeldInstance) -> bool:
    """Return whether the job holds the instance and is to keep it."""
    return held.desired is Desired.PRESENT and held.phase is not InstancePhase.QUEUED
