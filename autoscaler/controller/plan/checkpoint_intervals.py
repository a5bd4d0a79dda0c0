"""Checkpoint intervals of jobs on reclaimable instances, by Young and Daly."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from autoscaler.controller.offers.estimates import in_steps
from autoscaler.domain.job import JobRecord
from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.pricing.transfers import (
    bounded_seconds,
    save_interval_seconds,
    upload_usd,
)
from autoscaler.economics.supply.supply import SECONDS_PER_HOUR

# Least interval in write times: checkpoints are written beside training, to the same disk or
# network, for at most a tenth of the time.
_LEAST_INTERVAL_IN_WRITES: Final = 10.0


def checkpoint_intervals(
    jobs: Sequence[JobRecord],
    snapshot: Snapshot,
    at_risk: Collection[str] = (),
) -> dict[str, float]:
    """Return the seconds between two checkpoints of each job whose interval is set here, by id.

    Left out are jobs with an interval set by their owner, jobs without a measured checkpoint, and
    jobs with neither reclaimable instances nor a price per gigabyte for saving. Jobs in `at_risk`,
    with instances that the cloud signals as likely to be reclaimed, get the shortest interval.
    """
    records = {job.id: job for job in jobs}
    offers = {offer.id: offer for offer in snapshot.offers}
    interval_of = {
        job.id: _interval_seconds(records[job.id], job, offers, job.id in at_risk)
        for job in snapshot.jobs
    }
    return {job: seconds for job, seconds in interval_of.items() if seconds is not None}


def _interval_seconds(
    record: JobRecord, job: JobSnapshot, offers: Mapping[str, Offer], is_at_risk: bool
) -> float | None:
    per_second, paused_seconds = _restarts_per_second(job), job.switching.checkpoint_seconds
    save_usd, usd_per_second = _save_prices(job, offers)
    if record.spec.checkpoint.interval_seconds is not None:
        return None
    if record.report is None or not paused_seconds or not (per_second or save_usd):
        return None
    prices = np.array(save_usd), np.array(usd_per_second)
    interval_seconds = float(save_interval_seconds(paused_seconds, *prices, np.array(per_second)))
    interval_seconds = 0.0 if is_at_risk else interval_seconds
    written_seconds = record.report.checkpoint.seconds or 0.0
    interval_seconds = in_steps(max(interval_seconds, _LEAST_INTERVAL_IN_WRITES * written_seconds))
    return float(bounded_seconds(np.array(interval_seconds)))


def _save_prices(job: JobSnapshot, offers: Mapping[str, Offer]) -> tuple[float, float]:
    """Return the US dollars to send a checkpoint, and those per second of the instances."""
    trains_on = job.trained or job.held
    offer = None if trains_on is None else offers.get(trains_on.offer)
    if trains_on is None or offer is None:
        return 0.0, 0.0
    return upload_usd(job.switching, offer), offer.usd_per_second * trains_on.instances


def _restarts_per_second(job: JobSnapshot) -> float:
    """Return an upper bound of reclaims per second that cause a restart from a checkpoint.

    With the minimum of instances any reclaim does, because it takes a whole gang. With more, only
    the reclaim of all gangs does, which is no more likely than that of one gang.
    """
    if job.held is None or job.held_reclaims_per_hour is None:
        return 0.0
    held = job.held
    gang = job.parallelism.gang_of(held.devices_used) or 1
    count = held.instances if held.instances - gang < job.instances.minimum else gang
    return count * job.held_reclaims_per_hour / SECONDS_PER_HOUR
