"""Reference implementation of the economics in plain loops, for one draw and a fixed batch."""

from __future__ import annotations

import math

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.domain.snapshot import JobSnapshot, Snapshot


def offer_of(snapshot: Snapshot, allocation: Allocation) -> Offer:
    return next(offer for offer in snapshot.offers if offer.id == allocation.offer)


def plain_goodput(job: JobSnapshot, offer: Offer, instances: int, used: int) -> float:
    """Return useful examples a second of the one draw, by `ThroughputParameters`."""
    devices = instances * used
    if instances == 0 or devices > job.batch.initial:
        return 0.0
    theta = job.models[offer.device_kind].draws[0]
    compute = theta.alpha_compute_seconds + theta.beta_compute_seconds_per_example * math.ceil(
        job.batch.initial / devices
    )
    sync = 0.0
    doublings = math.log2(max(devices, 2) / 2)
    if devices > 1 and instances == 1:
        sync = theta.alpha_within_seconds + theta.beta_within_seconds_per_doubling * doublings
    elif devices > 1:
        sync = theta.alpha_across_seconds + theta.beta_across_seconds_per_doubling * doublings
    step = (compute**theta.gamma + sync**theta.gamma) ** (1 / theta.gamma)
    return job.batch.initial / step


def goodput(job: JobSnapshot, snapshot: Snapshot, allocation: Allocation) -> float:
    """Return useful examples a second, reduced by reclaims."""
    offer, n = offer_of(snapshot, allocation), allocation.instances
    full = plain_goodput(job, offer, n, allocation.devices_used)
    reclaims = n * offer.reclaims_per_hour / 3600
    if reclaims == 0:
        return full
    if n - 1 < job.instances.minimum:
        refill = offer.boot_seconds + job.switching.restore_seconds
        return full / (1 + reclaims * refill)
    less = plain_goodput(job, offer, n - 1, allocation.devices_used)
    share = reclaims * offer.boot_seconds / (1 + reclaims * offer.boot_seconds)
    lost = reclaims * job.switching.pause_seconds * full
    return (1 - share) * full + share * less - lost


def price(job: JobSnapshot, snapshot: Snapshot, allocation: Allocation) -> float:
    """Return $ per second, with refills after reclaims."""
    offer = offer_of(snapshot, allocation)
    refills = allocation.instances * offer.reclaims_per_hour / 3600 * offer.boot_seconds
    instances = (allocation.instances + refills) * float(offer.usd_per_hour) / 3600
    return instances + uploads(job, offer, allocation.instances) + fetches(job, offer, allocation)


def fetches(job: JobSnapshot, offer: Offer, allocation: Allocation) -> float:
    """Return $ per second for fetching checkpoints at restarts after losses."""
    if allocation.instances > job.instances.minimum:
        return 0.0
    lost = allocation.instances * offer.reclaims_per_hour / 3600
    return lost * download(job, offer, allocation.instances)


def uploads(job: JobSnapshot, offer: Offer, instances: int) -> float:
    """Return $ per second for sending checkpoints, by Young and Daly's equation 37."""
    usd = upload(job, offer)
    if usd == 0 or job.switching.checkpoint_interval_seconds is not None:
        return usd / (job.switching.checkpoint_interval_seconds or 1.0)
    if offer.reclaims_per_hour == 0:
        return usd / 3600
    as_seconds = usd / (instances * float(offer.usd_per_hour) / 3600)
    seconds = job.switching.checkpoint_seconds + as_seconds
    count = instances if instances <= job.instances.minimum else 1
    life = 3600 / (count * offer.reclaims_per_hour)
    if seconds >= 2 * life:
        best = life
    else:
        half = seconds / (2 * life)
        best = math.sqrt(2 * seconds * life) * (1 + math.sqrt(half) / 3 + half / 9) - seconds
    return usd / min(max(best, 30.0), 3600.0)


def upload(job: JobSnapshot, offer: Offer) -> float:
    """Return $ for sending a checkpoint from an instance."""
    return job.switching.checkpoint_bytes / 1e9 * float(offer.upload_usd_per_gb)


def download(job: JobSnapshot, offer: Offer, instances: int) -> float:
    """Return $ for fetching a checkpoint on a number of instances."""
    gigabytes = job.switching.checkpoint_bytes / 1e9
    return gigabytes * float(offer.download_usd_per_gb) * instances


def cost(
    job: JobSnapshot, snapshot: Snapshot, value: float, work: float, after: Allocation
) -> float:
    """Return J(after | held): $ until `work` is done, with waiting at `value` $ per second."""
    before = job.held
    offer = offer_of(snapshot, after)
    spent = price(job, snapshot, after) + value
    rest = spent / goodput(job, snapshot, after)
    unit = float(offer.usd_per_hour) / 3600
    if before is None:
        idle = offer.boot_seconds * (after.instances * unit + value)
        has_run = job.spent_usd > 0 and job.switching.restore_seconds > 0
        pause = job.switching.restore_seconds if has_run else 0.0
        fetched = download(job, offer, after.instances) if has_run else 0.0
        return idle + fetched + pause * spent + work * rest
    if before == after:
        return work * rest
    kept = min(before.instances, after.instances) if before.offer == after.offer else 0
    extra = after.instances - kept
    ready = offer.boot_seconds if extra > 0 else 0.0
    pause = job.switching.pause_seconds
    carried = download(job, offer, after.instances) + upload(job, offer_of(snapshot, before))
    boot = extra * unit * ready
    if before.offer == after.offer and before.devices_used != after.devices_used:
        pause += job.switching.restore_seconds
        boot += carried
    speed = goodput(job, snapshot, before)
    restore = job.switching.restore_seconds * spent
    is_elsewhere = offer_of(snapshot, before).network != offer.network
    if is_elsewhere:
        boot += carried
        pause += job.switching.restore_seconds + job.switching.carry_seconds
        restore = 0.0
    if before.offer != after.offer and offer.purchase is not Purchase.SPOT:
        saved = ready * (price(job, snapshot, before) - speed * rest)
        fetched = 0.0 if is_elsewhere else carried
        if saved > restore + fetched:
            return boot + fetched + ready * value + pause * spent + restore + work * rest
    done = min(work, speed * ready)
    meanwhile = done / speed * (price(job, snapshot, before) + value)
    return boot + meanwhile + pause * spent + (work - done) * rest
