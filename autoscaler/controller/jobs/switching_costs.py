"""Costs of changing a job's allocation: measured, or typical values before a measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from autoscaler.controller.jobs.restart_costs import with_restarts
from autoscaler.controller.offers.estimates import in_steps
from autoscaler.domain.job import JobRecord
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import TrainingReport
from autoscaler.domain.snapshot import SwitchingCosts
from autoscaler.economics.pricing.gangs import gang_boot_seconds
from autoscaler.goodput.prior import USABLE_BANDWIDTH
from autoscaler.store.repositories.measurements import (
    REVERSED_DURATION,
    START_DURATION,
    Mean,
    pause_name,
)

# Typical values, used before a job's own are measured.
_USUAL_PAUSE_SECONDS = 1.0
_USUAL_START_SECONDS = 15.0
_USUAL_RESTORE_SECONDS = 3.0
# Unknown size of a job's state, in sizes of its parameters: parameters and optimizer state.
_STATE_PER_PARAMETER_BYTES = 3
# Transfers of a checkpoint that moves to another network: to storage and from there.
_TRANSFERS_OF_CHECKPOINT = 2.0
# Delay from the first steps at a new size until plans use their measurement.
_MEASURE_SECONDS = 5.0

_PAUSES = tuple(pause_name(kind) for kind in ("join", "drain"))


def switching_costs(
    job: JobRecord,
    durations: Mapping[tuple[str | None, str], Mean],
    offers: Sequence[Offer],
    now_seconds: float,
    remembered: Mapping[str, float],
) -> SwitchingCosts:
    """Return the switching costs of a job; measurements on one offer inform those of the others.

    Args:
        job: the job.
        durations: measured durations by offer (None for any) and name.
        offers: all offers.
        now_seconds: the time since the Unix epoch.
        remembered: starts of earlier jobs of the same program, in seconds by offer.
    """
    age_seconds = now_seconds - job.submitted_seconds
    pauses = [durations[None, name] for name in _PAUSES if (None, name) in durations]
    count = sum(mean.count for mean in pauses)
    pause_seconds = _usual_pause_seconds(job, offers)
    if count:
        pause_seconds = sum(mean.seconds * mean.count for mean in pauses) / count
    measured = {
        offer.id: durations[offer.id, START_DURATION].seconds
        for offer in offers
        if (offer.id, START_DURATION) in durations
    }
    remembered_starts = {
        offer.id: remembered[offer.id] for offer in offers if offer.id in remembered
    }
    measured = {**remembered_starts, **measured}
    boots = {offer.id: _boot_seconds(job, offer) for offer in offers}
    beyond_boot = [
        measured[offer.id] - boots[offer.id] for offer in offers if offer.id in measured
    ]
    usual_beyond_boot = max(min(beyond_boot), 0.0) if beyond_boot else _USUAL_START_SECONDS
    reversals = durations.get((None, REVERSED_DURATION))
    costs = SwitchingCosts(
        pause_seconds=pause_seconds,
        restore_seconds=_USUAL_RESTORE_SECONDS,
        start_seconds={
            offer.id: measured.get(offer.id, boots[offer.id] + usual_beyond_boot)
            for offer in offers
        },
        dwell_seconds=age_seconds / reversals.count if reversals else None,
        measure_seconds=_MEASURE_SECONDS,
    )
    if job.report is not None:
        costs = _with_checkpoints(costs, job, job.report)
    return costs if job.spec.restart is None else with_restarts(costs, durations)


def _boot_seconds(job: JobRecord, offer: Offer) -> float:
    """Return the expected boot of an offer's instance, or of the slowest one of a gang.

    A measured start counts the wait for the others of its gang already.
    """
    gang = job.spec.parallelism.gang_on(offer)
    return offer.boot_seconds if gang is None else gang_boot_seconds(offer.boot_seconds, gang)


def _usual_pause_seconds(job: JobRecord, offers: Sequence[Offer]) -> float:
    """Return the expected pause of a join before it is measured.

    All replicas wait until the joining one has the state, sent through the median offer's network.
    """
    state_bytes = job.report.state_bytes if job.report else None
    if state_bytes is None or not offers:
        return _USUAL_PAUSE_SECONDS
    network = median(offer.network_bytes_per_second for offer in offers)
    transfer_seconds = state_bytes / (USABLE_BANDWIDTH * network)
    return _USUAL_PAUSE_SECONDS + in_steps(transfer_seconds)


def _with_checkpoints(
    costs: SwitchingCosts, job: JobRecord, report: TrainingReport
) -> SwitchingCosts:
    """Return the costs with those of the last checkpoint, or expected values without one."""
    checkpoint = report.checkpoint
    expected_bytes = report.state_bytes or _STATE_PER_PARAMETER_BYTES * report.parameter_bytes
    return replace(
        costs,
        checkpoint_seconds=in_steps(checkpoint.pause_seconds or 0.0),
        checkpoint_interval_seconds=job.spec.checkpoint.interval_seconds,
        checkpoint_bytes=float(checkpoint.bytes or expected_bytes),
        carry_seconds=in_steps(_TRANSFERS_OF_CHECKPOINT * (checkpoint.seconds or 0.0)),
    )
