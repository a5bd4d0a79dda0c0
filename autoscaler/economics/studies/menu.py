"""What the trials of a study may hold within their jobs' bounds, and what changing costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.starts import billed_start_seconds
from autoscaler.economics.studies.rung import StudySupply, TrialSwitching
from autoscaler.economics.supply import BoolArray, Supply
from autoscaler.goodput.throughput import FloatArray

# Of offers that differ in zone and price alone, so many of the cheapest are looked at.
_ALIKE = 2
# Numbers of instances are all looked at up to here, and from there on each half as many more.
_EVERY = 4
_STEP = 1.5


def trial_supply(
    jobs: Sequence[JobSnapshot], supply: Supply, taken: FloatArray, look_seconds: float | None
) -> StudySupply | None:
    """What the trials of these jobs may hold; None where nothing is offered to any of them.

    Args:
        jobs: alive trials of one study.
        supply: what is offered.
        taken: what others use of each limit, (R,); the rest is the trials'.
        look_seconds: until the speed of a trial is known; None: as the jobs say.
    """
    sizes = _sizes(jobs, supply)
    if not sizes:
        return None
    limits = tuple(
        replace(limit, maximum=max(limit.maximum - float(used), 0.0))
        for limit, used in zip(supply.limits, taken, strict=True)
    )
    offers = tuple(offer for offer in supply.offers if not offer.shared)
    return StudySupply(offers, sizes, trial_switching(jobs, supply, look_seconds), limits)


def is_permitted(size: Allocation, job: JobSnapshot, supply: Supply) -> bool:
    """Whether a trial may go to a size: its bounds, and what can be had now."""
    offer = supply.offer(size.offer)
    if offer is None or supply.terms.index[offer.id] not in supply.permitted(job.instances):
        return False
    if offer.device_kind not in job.models or not 1 <= size.devices_used <= offer.devices:
        return False
    most = job.instances.most_of(offer)
    if offer.id in supply.unavailable:
        most = min(most, _held_of(job, offer))
    return job.instances.minimum <= size.instances <= most


def permitted_sizes(job: JobSnapshot, sizes: Sequence[Allocation], supply: Supply) -> BoolArray:
    """Which sizes a trial may go to, (A,): whole instances, or what it holds."""
    devices = {offer.id: offer.devices for offer in supply.offers}
    found = [
        (size == job.held or size.devices_used == devices.get(size.offer))
        and is_permitted(size, job, supply)
        for size in sizes
    ]
    return np.array(found, dtype=np.bool_)


def trial_switching(
    jobs: Sequence[JobSnapshot], supply: Supply, look_seconds: float | None = None
) -> TrialSwitching:
    """What changing costs these trials, on average.

    A trial of one instance that moves begins anew from its checkpoint. One that begins on what
    another has left needs no boot, and all else that follows one.
    """
    starts, pauses = [], []
    for job in jobs:
        known = [
            max(billed_start_seconds(job.switching, offer) - offer.boot_seconds, 0.0)
            for offer in (supply.offers[index] for index in supply.permitted(job.instances))
        ]
        start = (min(known) if known else 0.0) + job.switching.restore_seconds
        starts.append(start)
        pauses.append(start if job.instances.maximum == 1 else job.switching.pause_seconds)
    start_seconds = float(np.mean(starts))
    look = jobs[0].switching.measure_seconds if look_seconds is None else look_seconds
    return TrialSwitching(
        pause_seconds=float(np.mean(pauses)),
        start_seconds=start_seconds,
        handover_seconds=start_seconds,
        lost_seconds=float(np.mean([job.switching.restore_seconds for job in jobs])) + look / 2,
        look_seconds=look,
    )


def _sizes(jobs: Sequence[JobSnapshot], supply: Supply) -> tuple[Allocation, ...]:
    """Every size that matters to any of them, and what they hold, in order."""
    found: set[Allocation] = set()
    seen: set[object] = set()
    for job in jobs:
        held = job.held
        if held is not None and supply.offer(held.offer) is not None:
            found.add(held)
        key = job.instances, frozenset(job.models)
        if key not in seen:
            seen.add(key)
            found |= _sizes_of(job, supply)
    return tuple(sorted(found, key=lambda one: (one.offer, one.instances, one.devices_used)))


def _sizes_of(job: JobSnapshot, supply: Supply) -> set[Allocation]:
    permitted = [supply.offers[index] for index in supply.permitted(job.instances)]
    usable = [offer for offer in permitted if offer.device_kind in job.models]
    found = set()
    for offer in _cheapest(one for one in usable if one.id not in supply.unavailable):
        most = min(job.instances.most_of(offer), _bearable(offer, supply.limits))
        for count in _ladder(max(job.instances.minimum, 1), most):
            found.add(Allocation(offer.id, count, offer.devices))
    return found


def _cheapest(offers: Iterable[Offer]) -> list[Offer]:
    """Of each kind of instance and of purchase the cheapest."""
    alike: dict[object, list[Offer]] = defaultdict(list)
    for offer in offers:
        terms = offer.purchase if offer.purchase.is_at_times else None
        alike[offer.device_kind, offer.devices, terms].append(offer)
    kept = []
    for each in alike.values():
        kept += sorted(each, key=lambda one: (one.usd_per_second, one.id))[:_ALIKE]
    return kept


def _bearable(offer: Offer, limits: Iterable[Limit]) -> int:
    """How many instances the limits bear if nobody else holds any."""
    uses = [(limit.maximum, limit.use(offer)) for limit in limits]
    return int(min((most / use + 1e-9 for most, use in uses if use > 0), default=1e9))


def _ladder(least: int, most: int) -> list[int]:
    counts = []
    count = least
    while count <= most:
        counts.append(count)
        count = count + 1 if count < _EVERY else int(count * _STEP)
    if counts and counts[-1] != most:
        counts.append(most)
    return counts


def _held_of(job: JobSnapshot, offer: Offer) -> int:
    return job.held.instances if job.held is not None and job.held.offer == offer.id else 0
