"""How often jobs on what may be reclaimed take checkpoints: by Young and Daly."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from autoscaler.controller.experience import in_steps
from autoscaler.domain.job import JobRecord
from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.carrying import bounded_seconds, save_interval_seconds, upload_usd
from autoscaler.economics.supply import SECONDS_PER_HOUR

# A checkpoint is written beside training, and to the same disk or network: a tenth of the time.
_WRITES: Final = 10.0


def checkpoint_intervals(
    jobs: Sequence[JobRecord],
    snapshot: Snapshot,
    at_risk: Collection[str] = (),
) -> dict[str, float]:
    """Seconds between two checkpoints of each job that is to be told, by its id.

    Told are jobs whose owner named none, of which a checkpoint was measured and that hold what
    may be reclaimed, or from where a save is paid for by the gigabyte. Jobs `at_risk`, with what
    its cloud would rather have back, save as often as any does.
    """
    records = {job.id: job for job in jobs}
    offers = {offer.id: offer for offer in snapshot.offers}
    told = {
        one.id: _interval_seconds(records[one.id], one, offers, one.id in at_risk)
        for one in snapshot.jobs
    }
    return {job: seconds for job, seconds in told.items() if seconds is not None}


def _interval_seconds(
    record: JobRecord, job: JobSnapshot, offers: Mapping[str, Offer], is_at_risk: bool
) -> float | None:
    per_second, paused_seconds = _restarts_per_second(job), job.switching.checkpoint_seconds
    sent_usd, usd_per_second = _prices(job, offers)
    if record.spec.checkpoint.interval_seconds is not None:
        return None
    if record.report is None or not paused_seconds or not (per_second or sent_usd):
        return None
    costs = np.array(sent_usd), np.array(usd_per_second)
    best = float(save_interval_seconds(paused_seconds, *costs, np.array(per_second)))
    best = 0.0 if is_at_risk else best
    written_seconds = record.report.checkpoint.seconds or 0.0
    best = in_steps(max(best, _WRITES * written_seconds))
    return float(bounded_seconds(np.array(best)))


def _prices(job: JobSnapshot, offers: Mapping[str, Offer]) -> tuple[float, float]:
    """$ to send a checkpoint from where it trains, and $ per second of what it trains on."""
    trains_on = job.trained or job.held
    offer = None if trains_on is None else offers.get(trains_on.offer)
    if trains_on is None or offer is None:
        return 0.0, 0.0
    return upload_usd(job.switching, offer), offer.usd_per_second * trains_on.instances


def _restarts_per_second(job: JobSnapshot) -> float:
    """Reclaims a second after which it starts from a checkpoint, at most.

    Any of its instances where it has no more than it needs; else all of them at once, which is
    no more likely than that of one.
    """
    if job.held is None or job.held_reclaims_per_hour is None:
        return 0.0
    count = job.held.instances if job.held.instances <= job.instances.minimum else 1
    return count * job.held_reclaims_per_hour / SECONDS_PER_HOUR
