"""Sizes worth considering for the trials of a study, and the cost of changing between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.pricing.starts import billed_start_seconds
from autoscaler.economics.studies.supply import StudySupply, TrialSwitching
from autoscaler.economics.supply.supply import BoolArray, Supply
from autoscaler.goodput.throughput import FloatArray

# Number of the cheapest considered of offers that differ in zone and price alone.
_ALIKE = 2
# All numbers of instances are considered up to this one, then each half as many more.
_EVERY = 4
_STEP = 1.5


def trial_supply(
    jobs: Sequence[JobSnapshot], supply: Supply, taken: FloatArray, look_seconds: float | None
) -> StudySupply | None:
    """Return the sizes that the trials may hold; None if nothing is offered to any of them.

    Args:
        jobs: jobs of the trials of one study that have not ended.
        supply: the offers and limits.
        taken: use of each limit by other jobs, (R,).
        look_seconds: until the speed of a trial is known; None: as its job says.
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
    """Return whether a trial may hold a size: its bounds permit it, and it can be had now."""
    offer = supply.offer(size.offer)
    if offer is None or supply.terms.index[offer.id] not in supply.permitted(job.instances):
        return False
    if offer.device_kind not in job.models or not 1 <= size.devices_used <= offer.devices:
        return False
    gang = job.parallelism.gang_of(size.devices_used)
    if gang is None or size.instances % gang:
        return False
    most = job.instances.most_of(offer)
    if offer.id in supply.unavailable:
        most = min(most, _held_of(job, offer))
    return job.instances.minimum <= size.instances <= most


def permitted_sizes(job: JobSnapshot, sizes: Sequence[Allocation], supply: Supply) -> BoolArray:
    """Return which sizes a trial may hold, (A,): whole instances, or its present allocation."""
    devices = {offer.id: offer.devices for offer in supply.offers}
    permitted = [
        (size == job.held or size.devices_used == devices.get(size.offer))
        and is_permitted(size, job, supply)
        for size in sizes
    ]
    return np.array(permitted, dtype=np.bool_)


def trial_switching(
    jobs: Sequence[JobSnapshot], supply: Supply, look_seconds: float | None = None
) -> TrialSwitching:
    """Return the mean cost of changing of these trials.

    A trial of one instance that moves restarts from its checkpoint. A trial on an instance that
    another trial left needs no boot, but all that follows one.
    """
    starts, pauses = [], []
    for job in jobs:
        after_boot = [
            max(billed_start_seconds(job.switching, offer) - offer.boot_seconds, 0.0)
            for offer in (supply.offers[index] for index in supply.permitted(job.instances))
        ]
        start = (min(after_boot) if after_boot else 0.0) + job.switching.restore_seconds
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
    """Return the sizes worth considering for any job, and those that jobs hold, sorted."""
    sizes: set[Allocation] = set()
    seen: set[object] = set()
    for job in jobs:
        held = job.held
        if held is not None and supply.offer(held.offer) is not None:
            sizes.add(held)
        key = job.instances, frozenset(job.models), job.parallelism.shard
        if key not in seen:
            seen.add(key)
            sizes |= _sizes_of(job, supply)
    return tuple(sorted(sizes, key=lambda size: (size.offer, size.instances, size.devices_used)))


def _sizes_of(job: JobSnapshot, supply: Supply) -> set[Allocation]:
    permitted = [supply.offers[index] for index in supply.permitted(job.instances)]
    usable = [offer for offer in permitted if offer.device_kind in job.models]
    sizes = set()
    for offer in _cheapest(offer for offer in usable if offer.id not in supply.unavailable):
        gang, least = job.gang_instances(offer), job.least_instances(offer)
        if gang is None or least is None:
            continue
        most = min(job.instances.most_of(offer), _bearable(offer, supply.limits))
        for gangs in _ladder(least // gang, most // gang):
            sizes.add(Allocation(offer.id, gangs * gang, offer.devices))
    return sizes


def _cheapest(offers: Iterable[Offer]) -> list[Offer]:
    """Return the cheapest offers of each kind of instance and of purchase."""
    alike: dict[object, list[Offer]] = defaultdict(list)
    for offer in offers:
        terms = offer.purchase if offer.purchase.is_at_times else None
        alike[offer.device_kind, offer.devices, terms].append(offer)
    kept = []
    for group in alike.values():
        kept += sorted(group, key=lambda offer: (offer.usd_per_second, offer.id))[:_ALIKE]
    return kept


def _bearable(offer: Offer, limits: Iterable[Limit]) -> int:
    """Return the number of instances that the limits permit if nothing else is held."""
    uses = [(limit.maximum, limit.use(offer)) for limit in limits]
    permitted = (maximum / use + 1e-9 for maximum, use in uses if use > 0)
    return int(min(permitted, default=1e9))


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
