"""What changing costs a job: as it was measured, and before that as it usually is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from autoscaler.controller.experience import in_steps
from autoscaler.domain.job import JobRecord
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import TrainingReport
from autoscaler.domain.snapshot import SwitchingCosts
from autoscaler.goodput.prior import USABLE_BANDWIDTH
from autoscaler.store.measurements import REVERSED_DURATION, START_DURATION, Mean, pause_name

# Before a job's own have been measured.
_USUAL_PAUSE_SECONDS = 1.0
_USUAL_START_SECONDS = 15.0
_USUAL_RESTORE_SECONDS = 3.0
# Where a job has not told the size of its state: the parameters, and what optimizers keep of them.
_STATES_OF_PARAMETERS = 3
# To another network it goes once to storage, and once from there.
_WAYS_OF_CHECKPOINT = 2.0
# What is measured at a new size is told within a heartbeat and planned with a moment later.
_MEASURE_SECONDS = 5.0

_PAUSES = tuple(pause_name(kind) for kind in ("join", "drain"))


def switching_costs(
    job: JobRecord,
    durations: Mapping[tuple[str | None, str], Mean],
    offers: Sequence[Offer],
    now_seconds: float,
    remembered: Mapping[str, float],
) -> SwitchingCosts:
    """Those of a job; what was measured on one offer carries to the others.

    Args:
        job: which.
        durations: what was measured of it, by offer and by what it is of.
        offers: all there are.
        now_seconds: since the Unix epoch.
        remembered: the starts of earlier jobs of its program, in seconds by offer.
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
    starts = {offer.id: remembered[offer.id] for offer in offers if offer.id in remembered}
    measured = {**starts, **measured}
    beyond_boot = [
        measured[offer.id] - offer.boot_seconds for offer in offers if offer.id in measured
    ]
    usual = max(min(beyond_boot), 0.0) if beyond_boot else _USUAL_START_SECONDS
    reversed_ = durations.get((None, REVERSED_DURATION))
    costs = SwitchingCosts(
        pause_seconds=pause_seconds,
        restore_seconds=_USUAL_RESTORE_SECONDS,
        start_seconds={
            offer.id: measured.get(offer.id, offer.boot_seconds + usual) for offer in offers
        },
        dwell_seconds=age_seconds / reversed_.count if reversed_ else None,
        measure_seconds=_MEASURE_SECONDS,
    )
    return costs if job.report is None else _with_checkpoints(costs, job, job.report)


def _usual_pause_seconds(job: JobRecord, offers: Sequence[Offer]) -> float:
    """Return the pause of a join that was not measured: all wait until the joiner has the state.

    The state crosses the network of the median offer.
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
    """With what the job's last checkpoint took, or is likely to."""
    told = report.checkpoint
    expected_bytes = report.state_bytes or _STATES_OF_PARAMETERS * report.parameter_bytes
    return replace(
        costs,
        checkpoint_seconds=in_steps(told.pause_seconds or 0.0),
        checkpoint_interval_seconds=job.spec.checkpoint.interval_seconds,
        checkpoint_bytes=float(told.bytes or expected_bytes),
        carry_seconds=in_steps(_WAYS_OF_CHECKPOINT * (told.seconds or 0.0)),
    )
