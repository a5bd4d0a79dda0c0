"""Jobs that wait for instances, in the order in which they get them, and when that may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from autoscaler.cli.tables import amount, words_table
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.offer import Offer
from autoscaler.spec.quantities import format_duration
from autoscaler.wire.messages import FleetView, JobView

_BID, _WEIGHT = "bid_usd_per_hour", "weight"


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """Job without an instance that trains.

    `bid_usd_per_hour` is what it bids for limits that bind, with its weight; None: unknown.
    `start_seconds` is the time until it may train, `freed_by` the job whose end frees instances
    then; None: unknown. `usd_per_hour` is the price of what it will get, or at the least.
    """

    job: str
    person: str | None
    bid_usd_per_hour: float | None
    waits_seconds: float
    start_seconds: float | None
    freed_by: str | None
    usd_per_hour: float | None
    reason: str


def queue(jobs: Sequence[JobView], fleet: FleetView, now_seconds: float) -> tuple[QueuedJob, ...]:
    """Return the jobs that wait, those that will start first first.

    A job with instances that start, or a decision to start, comes before one that was outbid.
    Among these the larger bid comes first, then the earlier submission.
    """
    offers = {offer.id: offer for offer in fleet.offers}
    waiting = [job for job in jobs if not job.phase.is_final and not _trains(job)]
    freed = min(
        ((job.eta_seconds, job.id) for job in jobs if job.eta_seconds is not None), default=None
    )
    rows = [(job, _queued(job, offers, freed, now_seconds)) for job in waiting]
    rows.sort(
        key=lambda row: (
            not row[0].instances,
            not _has_target(row[0]),
            -(row[1].bid_usd_per_hour or 0.0),
            row[0].submitted_seconds,
        )
    )
    return tuple(row for _, row in rows)


def queue_table(rows: Sequence[QueuedJob]) -> RenderableType:
    """Return a table of the jobs that wait."""
    if not rows:
        return Text("no job waits: castor status shows those that run", style="dim")
    table = words_table(
        *("", "job", "person", "waits", "bid $/h", "start", "price $/h", "why"),
        wraps={"why", "start"},
        right={"", "waits", "bid $/h", "price $/h"},
    )
    for place, row in enumerate(rows, start=1):
        table.add_row(
            str(place),
            row.job,
            row.person or "-",
            format_duration(row.waits_seconds),
            "-" if row.bid_usd_per_hour is None else amount(row.bid_usd_per_hour),
            _start_text(row),
            "-" if row.usd_per_hour is None else amount(row.usd_per_hour),
            row.reason,
        )
    return table


def _trains(job: JobView) -> bool:
    return any(instance.phase is InstancePhase.TRAINING for instance in job.instances)


def _since(job: JobView) -> float:
    """Return the time since which a job waits: its last report, or its submission before any."""
    return job.submitted_seconds if job.reported_seconds is None else job.reported_seconds


def _has_target(job: JobView) -> bool:
    return job.decision is not None and job.decision.target is not None


def _queued(
    job: JobView,
    offers: dict[str, Offer],
    freed: tuple[float, str] | None,
    now_seconds: float,
) -> QueuedJob:
    start_seconds, freed_by = _start(job, offers, freed, now_seconds)
    figures = {} if job.decision is None else job.decision.figures
    bid = figures.get(_BID)
    reason = job.trouble or job.hands_off
    if reason is None:
        reason = "not planned yet" if job.decision is None else job.decision.reason
    return QueuedJob(
        job.id,
        job.person,
        None if bid is None else bid * figures.get(_WEIGHT, 1.0),
        max(now_seconds - _since(job), 0.0),
        start_seconds,
        freed_by,
        _price(job, offers),
        reason,
    )


def _start(
    job: JobView,
    offers: dict[str, Offer],
    freed: tuple[float, str] | None,
    now_seconds: float,
) -> tuple[float | None, str | None]:
    """Return the time until a job may train, and the job that must end before; None: unknown."""
    boots = [
        offers[instance.offer].boot_seconds - (now_seconds - instance.requested_seconds)
        for instance in job.instances
        if instance.offer in offers and instance.phase is not InstancePhase.QUEUED
    ]
    if boots:
        return max(min(boots), 0.0), None
    target = None if job.decision is None else job.decision.target
    if target is not None and target.offer in offers:
        return offers[target.offer].boot_seconds, None
    return (None, None) if freed is None else freed


def _price(job: JobView, offers: dict[str, Offer]) -> float | None:
    """Return the price of what the job holds or gets, else of its cheapest offer, in $/h."""
    if job.instances:
        return float(job.usd_per_hour)
    target = None if job.decision is None else job.decision.target
    if target is not None and target.offer in offers:
        return float(offers[target.offer].usd_per_hour) * target.instances
    bounds = job.bounds
    permitted = [float(offer.usd_per_hour) for offer in offers.values() if bounds.permits(offer)]
    return min(permitted) * max(bounds.minimum, 1) if permitted else None


def _start_text(row: QueuedJob) -> str:
    if row.start_seconds is None:
        return "unknown"
    words = format_duration(row.start_seconds)
    if row.freed_by is None:
        return f"in about {words}"
    return f"not before {words}, when {row.freed_by} ends"
