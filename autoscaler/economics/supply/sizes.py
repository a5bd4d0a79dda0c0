"""Sizes: allocations as arrays of offers, instances and devices used on each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.supply.supply import BoolArray, IntArray, Supply

# Numbers of gangs considered for a job of a fleet: up to 8, then each a quarter more.
_LADDER = np.array([1, 2, 3, 4, 5, 6, 7, 8, *(8 * 1.25 ** np.arange(1, 40)).astype(np.int64)])


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """A allocations: index of the offer, instances, devices used on each instance, (A,) each."""

    offer: IntArray
    instances: IntArray
    devices_used: IntArray

    def gangs(self, shard: int) -> IntArray:
        """Return the instances that hold one copy of a model together at each size, (A,).

        `shard` devices hold a copy. A gang is lost if one of its instances is.
        """
        instances: IntArray = np.maximum(shard // self.devices_used, 1)
        return instances

    def take(self, index: BoolArray | IntArray) -> Sizes:
        """Return the sizes selected by a mask (A,) or by indices."""
        return Sizes(self.offer[index], self.instances[index], self.devices_used[index])

    def index(self, offer: int, instances: int, devices_used: int) -> int | None:
        """Return the index of an allocation; None if it is not among the sizes."""
        is_alike = (self.offer == offer) & (self.instances == instances)
        (matches,) = np.nonzero(is_alike & (self.devices_used == devices_used))
        return int(matches[0]) if len(matches) else None

    def with_size(self, offer: int, instances: int, devices_used: int) -> Sizes:
        """Return the sizes with one more at the end."""
        return Sizes(
            np.append(self.offer, offer),
            np.append(self.instances, instances),
            np.append(self.devices_used, devices_used),
        )


def permitted_sizes(job: JobSnapshot, supply: Supply) -> Sizes:
    """Return all sizes that the job may hold, grouped by offer, the smallest first.

    A job whose model several devices share gets whole gangs of instances only. A job of a fleet
    gets a ladder of numbers of gangs, with the fewest, the most and the held ones.
    """
    permitted = [
        index
        for index in supply.permitted(job.instances)
        if supply.offers[index].device_kind in job.models
        and (job.parallelism.shard == 1 or job.gang_instances(supply.offers[index]) is not None)
    ]
    offer = np.array(permitted, dtype=np.int64)
    least, most = max(job.instances.minimum, 1), _most_instances(job, supply, offer)
    devices = np.array([any_offer.devices for any_offer in supply.offers], dtype=np.int64)[offer]
    sizes_of_one = np.where((least == 1) & (most >= 1), devices, 0)
    sizes_of_several = np.maximum(most - max(least, 2) + 1, 0)
    rows = sizes_of_one + sizes_of_several
    row = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
    sizes_of_one, devices = np.repeat(sizes_of_one, rows), np.repeat(devices, rows)
    is_alone = row < sizes_of_one
    sizes = Sizes(
        offer=np.repeat(offer, rows),
        instances=np.where(is_alone, 1, row - sizes_of_one + max(least, 2)),
        devices_used=np.where(is_alone, row + 1, devices),
    )
    most = np.repeat(most, rows)
    if job.parallelism.shard == 1 and not supply.terms.is_fleet:
        return sizes
    return _in_whole_gangs(job, supply, sizes, most)


def _in_whole_gangs(job: JobSnapshot, supply: Supply, sizes: Sizes, most: IntArray) -> Sizes:
    """Return the sizes that hold whole copies of the job's model; a ladder of gangs in a fleet.

    `most` is the largest number of instances at each size, (A,).
    """
    shard = job.parallelism.shard
    gangs = sizes.gangs(shard)
    smaller = np.minimum(sizes.devices_used, shard)
    is_whole = (np.maximum(sizes.devices_used, shard) % smaller == 0) & (
        sizes.instances % gangs == 0
    )
    if not supply.terms.is_fleet:
        return sizes.take(is_whole)
    copies, most_copies = sizes.instances // gangs, most // gangs
    least_copies = -(-max(job.instances.minimum, 1) // gangs)
    held = 0 if job.held is None else job.held.instances
    is_considered = np.isin(copies, _LADDER) | (copies == most_copies) | (copies == least_copies)
    return sizes.take(is_whole & (is_considered | (sizes.instances == held)))


def _most_instances(job: JobSnapshot, supply: Supply, offer: IntArray) -> IntArray:
    """Return the largest number of instances of each offer if the job were alone."""
    largest = np.full(len(offer), job.instances.maximum, dtype=np.float64)
    if job.instances.maxima or job.instances.has_ceiling:
        largest[:] = [job.instances.most_of(supply.offers[index]) for index in offer.tolist()]
    for position, index in enumerate(offer.tolist()):
        if supply.offers[index].id in supply.unavailable:
            is_held = job.held is not None and job.held.offer == supply.offers[index].id
            largest[position] = min(
                largest[position], job.held.instances if is_held and job.held else 0
            )
    uses = supply.unit_uses[:, offer]
    room = np.maximum(supply.maximum, 0.0)[:, None] + 1e-9
    bearable = np.where(uses > 0, room / np.where(uses > 0, uses, 1.0), np.inf)
    count: IntArray = np.minimum(largest, bearable.min(axis=0, initial=np.inf)).astype(np.int64)
    return count
