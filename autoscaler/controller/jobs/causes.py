"""Causes that justify a resize other than the one being carried out.

Causes are a job's arrival, end or changed terms, a lost instance, a price, a limit, and the first
measurement of a size. Time, progress and better estimates of measured sizes are not causes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase, by_job
from autoscaler.domain.snapshot import Snapshot
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class _Start:
    """Instances of a job, some of which are new, and the number of causes before their order."""

    instances: frozenset[tuple[str, int]]
    causes: int


class Causes:
    """Number of causes so far, and that number when each job's instances were ordered."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: object = None
        self._count = 0
        self._wanted: frozenset[str] = frozenset()
        self._starts: dict[str, _Start] = {}

    def undisturbed(self, snapshot: Snapshot, alive: Sequence[HeldInstance]) -> frozenset[str]:
        """Return the jobs that keep their allocation unless a cause requires another decision.

        These are the jobs with instances that are starting, or have trained for less time than
        they took to start, if there was no cause since their order.
        """
        count_before = self._count
        self._count += self._is_caused(snapshot, alive)
        starts = {}
        for job, instances in by_job(alive).items():
            kept_instances = [held for held in instances if _is_kept(held)]
            if not any(_is_new(held, snapshot.now_seconds) for held in kept_instances):
                continue
            held_now = frozenset((held.id, held.devices_used) for held in kept_instances)
            known_start = self._starts.get(job)
            is_known = known_start is not None and known_start.instances == held_now
            starts[job] = (
                known_start if known_start and is_known else _Start(held_now, count_before)
            )
        self._starts = starts
        return frozenset(job for job, start in starts.items() if start.causes == self._count)

    def _is_caused(self, snapshot: Snapshot, alive: Iterable[HeldInstance]) -> bool:
        """Record the present state, and return whether it contains a new cause."""
        wanted_ids = frozenset(held.id for held in alive if held.desired is Desired.PRESENT)
        is_lost = any(self._was_lost(instance) for instance in self._wanted - wanted_ids)
        present_causes = causes_in(snapshot)
        is_news = self._seen is not None and present_causes != self._seen
        self._seen, self._wanted = present_causes, wanted_ids
        return is_lost or is_news

    def _was_lost(self, instance: str) -> bool:
        held = self._store.instances.get(instance)
        is_over = held.phase is InstancePhase.ENDED or held.reclaim_seconds is not None
        return is_over and (held.desired is Desired.PRESENT or held.reclaim_seconds is not None)


def causes_in(snapshot: Snapshot) -> tuple[object, ...]:
    """Return the parts of a snapshot that are causes when they change."""
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
    """Return whether the job holds the instance and keeps it."""
    return held.desired is Desired.PRESENT and held.phase is not InstancePhase.QUEUED
