"""Offers and limits for a job that was not submitted, and its snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.jobs.models import Models
from autoscaler.controller.jobs.step_times import KnownStepTimes
from autoscaler.controller.observe.snapshots import (
    allowed_offers,
    job_snapshot,
    with_waits_of_gangs,
)
from autoscaler.controller.offers.estimates import MarketEstimator
from autoscaler.domain.job import JobSpec
from autoscaler.domain.lives import LifetimeEstimate
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.snapshot import Snapshot
from autoscaler.store.memory.store import memory_store
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Offers and limits for a hypothetical job.

    `lives` are those of reclaimable offers, by id. With None, they follow from the offers' own
    rates of reclaims.
    """

    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...]
    unavailable: frozenset[str] = frozenset()
    replan_seconds: float = 60.0
    lives: Mapping[str, LifetimeEstimate] | None = None


def circumstances_of(status: ControllerStatus, replan_seconds: float = 60.0) -> Circumstances:
    """Return the present offers and limits of a running controller, as it estimates them."""
    estimates = status.believed
    return Circumstances(
        estimates.offers or status.offers,
        status.limits,
        status.unavailable,
        replan_seconds,
        estimates.lives if estimates.offers else None,
    )


def snapshot_of(
    spec: JobSpec, memory: ProgramMemory | None, now: Circumstances, now_seconds: float
) -> Snapshot:
    """Return the snapshot that a controller would take right after the job was submitted."""
    store = memory_store()
    job = store.jobs.add(spec, now_seconds)
    usable = allowed_offers(spec.instances, now.offers) or now.offers
    step_times = KnownStepTimes(store).of(job, memory)
    models = Models(store).of(job, step_times, usable, now_seconds)
    snapshot = job_snapshot(store, job, (), now.offers, models, now_seconds, memory)
    return Snapshot(
        now_seconds=now_seconds,
        offers=now.offers,
        limits=now.limits,
        jobs=(with_waits_of_gangs(replace(snapshot, id=spec.name), now.offers),),
        unavailable=now.unavailable,
        replan_seconds=now.replan_seconds,
        lives=_usual_lives(store, now.offers, now_seconds) if now.lives is None else now.lives,
    )


def _usual_lives(
    store: Store, offers: tuple[Offer, ...], now_seconds: float
) -> Mapping[str, LifetimeEstimate]:
    """Return the lives that follow from the offers' own rates of reclaims."""
    experience = MarketEstimator(store)
    experience.believed(offers, (), now_seconds)
    return experience.lives(offers)
