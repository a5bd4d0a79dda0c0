"""The economics once more in plain loops, for jobs of one draw that may not change their batch."""

from __future__ import annotations

import math

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.domain.snapshot import JobSnapshot, Snapshot


def offer_of(snapshot: Snapshot, allocation: Allocation) -> Offer:
    return next(offer for offer in snapshot.offers if offer.id == allocation.offer)


def plain_goodput(job: JobSnapshot, offer: Offer, instances: int, used: int) -> float:
    """Useful examples a second of the one draw, by the formula of `ThroughputParameters`."""
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
    """With the reclaims of spot."""
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
    """$ per second, with the refills of spot."""
    offer = offer_of(snapshot, allocation)
    refills = allocation.instances * offer.reclaims_per_hour / 3600 * offer.boot_seconds
    return (allocation.instances + refills) * float(offer.usd_per_hour) / 3600


def cost(
    job: JobSnapshot, snapshot: Snapshot, value: float, work: float, after: Allocation
) -> float:
    """J(after | held): $ until `work` is done, waiting at `value` $ per second included."""
    before = job.held
    offer = offer_of(snapshot, after)
    spent = price(job, snapshot, after) + value
    rest = spent / goodput(job, snapshot, after)
    unit = float(offer.usd_per_hour) / 3600
    if before is None:
        idle = offer.boot_seconds * (after.instances * unit + value)
        pause = job.switching.restore_seconds if job.spent_usd > 0 else 0.0
        return idle + pause * spent + work * rest
    if before == after:
        return work * rest
    kept = min(before.instances, after.instances) if before.offer == after.offer else 0
    extra = after.instances - kept
    ready = offer.boot_seconds if extra > 0 else 0.0
    pause = job.switching.pause_seconds
    if before.offer == after.offer and before.devices_used != after.devices_used:
        pause += job.switching.restore_seconds
    speed = goodput(job, snapshot, before)
    restore = job.switching.restore_seconds * spent
    if before.offer != after.offer and offer.purchase is not Purchase.SPOT:
        saved = ready * (price(job, snapshot, before) - speed * rest)
        if saved > restore:
            return extra * unit * ready + ready * value + pause * spent + restore + work * rest
    done = min(work, speed * ready)
    meanwhile = done / speed * (price(job, snapshot, before) + value)
    return extra * unit * ready + meanwhile + pause * spent + (work - done) * rest
