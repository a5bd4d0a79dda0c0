"""Instances on standby, as arrays for pricing changes of allocation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.supply.supply import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class StandbyInstances:
    """Paused instances that train again without a boot: (J, 1) for J jobs, (1,) for one.

    Attributes:
        offer: index of their offer; -1: the job has none.
        instances: number of instances.
    """

    offer: IntArray
    instances: IntArray


def standby_of(jobs: Sequence[JobSnapshot], index: Mapping[str, int]) -> StandbyInstances | None:
    """Return the standby instances of J jobs; None if no job has any.

    `index` maps offer ids to indices.
    """
    offers = [-1 if job.standby is None else index.get(job.standby.offer, -1) for job in jobs]
    if not any(offer >= 0 for offer in offers):
        return None
    instances = [0 if job.standby is None else job.standby.instances for job in jobs]
    return StandbyInstances(np.array(offers)[:, None], np.array(instances)[:, None])


def standby_of_one(job: JobSnapshot, index: Mapping[str, int]) -> StandbyInstances | None:
    """Return the standby instances of one job, (1,); None if it has none."""
    standby = standby_of([job], index)
    return None if standby is None else StandbyInstances(standby.offer[0], standby.instances[0])
