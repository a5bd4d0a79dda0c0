"""Instances on standby, as arrays for pricing changes of allocation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.supply import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Standby:
    """Paused instances, which train again without a boot: of J jobs (J, 1), of one (1,).

    Attributes:
        offer: index of their offer; -1: a job has none.
        instances: number of them.
    """

    offer: IntArray
    instances: IntArray


def standby_of(jobs: Sequence[JobSnapshot], index: Mapping[str, int]) -> Standby | None:
    """Return what jobs have on standby of offers by `index`; None if no job has anything."""
    offers = [-1 if job.standby is None else index.get(job.standby.offer, -1) for job in jobs]
    if not any(offer >= 0 for offer in offers):
        return None
    instances = [0 if job.standby is None else job.standby.instances for job in jobs]
    return Standby(np.array(offers)[:, None], np.array(instances)[:, None])


def standby_of_one(job: JobSnapshot, index: Mapping[str, int]) -> Standby | None:
    """Return what one job has on standby, as `standby_of`."""
    standby = standby_of([job], index)
    return None if standby is None else Standby(standby.offer[0], standby.instances[0])
