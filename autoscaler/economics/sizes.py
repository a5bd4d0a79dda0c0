"""Which allocations are looked at, as numbers: offers, instances, devices of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.supply import BoolArray, IntArray, Supply

# Of a job of a fleet numbers of instances up to 8, and from there on each a quarter more.
_LADDER = np.array([1, 2, 3, 4, 5, 6, 7, 8, *(8 * 1.25 ** np.arange(1, 40)).astype(np.int64)])


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """A allocations as arrays (A,): the index of the offer, instances, devices used of each."""

    offer: IntArray
    instances: IntArray
    devices_used: IntArray

    def take(self, which: BoolArray | IntArray) -> Sizes:
        """Those of them where `which`, (A,), is true, or of these indices."""
        return Sizes(self.offer[which], self.instances[which], self.devices_used[which])

    def index(self, offer: int, instances: int, devices_used: int) -> int | None:
        """Where that allocation stands."""
        alike = (self.offer == offer) & (self.instances == instances)
        (found,) = np.nonzero(alike & (self.devices_used == devices_used))
        return int(found[0]) if len(found) else None

    def and_one(self, offer: int, instances: int, devices_used: int) -> Sizes:
        """These and, as the last, another."""
        return Sizes(
            np.append(self.offer, offer),
            np.append(self.instances, instances),
            np.append(self.devices_used, devices_used),
        )


def permitted_sizes(job: JobSnapshot, supply: Supply) -> Sizes:
    """All sizes that the job may hold, each offer's together, the smallest first.

    Of a fleet's job not all of many instances, but a ladder of them and what it holds.
    """
    permitted = [
        index
        for index in supply.permitted(job.instances)
        if supply.offers[index].device_kind in job.models
    ]
    offer = np.array(permitted, dtype=np.int64)
    least, most = max(job.instances.minimum, 1), _most_instances(job, supply, offer)
    devices = np.array([each.devices for each in supply.offers], dtype=np.int64)[offer]
    alone = np.where((least == 1) & (most >= 1), devices, 0)
    several = np.maximum(most - max(least, 2) + 1, 0)
    rows = alone + several
    row = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
    alone, devices = np.repeat(alone, rows), np.repeat(devices, rows)
    is_alone = row < alone
    sizes = Sizes(
        offer=np.repeat(offer, rows),
        instances=np.where(is_alone, 1, row - alone + max(least, 2)),
        devices_used=np.where(is_alone, row + 1, devices),
    )
    if not supply.terms.is_fleet:
        return sizes
    held = 0 if job.held is None else job.held.instances
    most = np.repeat(most, rows)
    wanted = np.append(_LADDER, [job.instances.minimum, held])
    return sizes.take(np.isin(sizes.instances, wanted) | (sizes.instances == most))


def _most_instances(job: JobSnapshot, supply: Supply, offer: IntArray) -> IntArray:
    """How many of each offer the job may hold if nobody else held anything."""
    most = np.full(len(offer), job.instances.maximum, dtype=np.float64)
    if job.instances.maxima:
        most[:] = [job.instances.most_of(supply.offers[index]) for index in offer.tolist()]
    for position, index in enumerate(offer.tolist()):
        if supply.offers[index].id in supply.unavailable:
            is_held = job.held is not None and job.held.offer == supply.offers[index].id
            most[position] = min(most[position], job.held.instances if is_held and job.held else 0)
    uses = supply.unit_uses[:, offer]
    room = np.maximum(supply.maximum, 0.0)[:, None] + 1e-9
    bearable = np.where(uses > 0, room / np.where(uses > 0, uses, 1.0), np.inf)
    count: IntArray = np.minimum(most, bearable.min(axis=0, initial=np.inf)).astype(np.int64)
    return count
