"""What it costs that a job loses what it holds to another job: a boot of each of the two.

Whoever takes the place boots there, and the loser boots again later: meanwhile neither trains, and
what both use of the limits is held by nobody else. A boot that is under way earns nothing before
it is over. So what replaces it has to be worth the two boots within the time of one; what has
booted is compared over the rest of its job.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.sizes import Sizes
from autoscaler.economics.supply import BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray

Numbers = FloatArray | np.float64 | float
# The boot of the job that takes the place, and that of the job that loses it.
_BOOTS = 2.0
# A cost is never spread over less than this.
LEAST_SECONDS = 1.0


def starting_instances(job: JobSnapshot) -> int:
    """Return how many of the instances that a job holds do not train yet."""
    held, trained = job.held, job.trained
    if held is None or held == trained:
        return 0
    if trained is None or (trained.offer, trained.devices_used) != (held.offer, held.devices_used):
        return held.instances
    return max(held.instances - trained.instances, 0)


def starting_share(job: JobSnapshot) -> float:
    """Return the share of the instances that a job holds which do not train yet."""
    return 0.0 if job.held is None else starting_instances(job) / job.held.instances


@dataclass(frozen=True, slots=True, eq=False)
class Restart:
    """A start from nothing of what a job holds; numbers, or arrays of one shape for many jobs.

    Attributes:
        ready_seconds: from the order to the first step.
        pause_seconds: added by a start from a checkpoint.
        boot_usd: paid until the first step.
        usd_per_second: the price of what is held.
        left_seconds: the rest of the job on what is held.
        is_starting: whether some of what is held does not train yet.
    """

    ready_seconds: Numbers
    pause_seconds: Numbers
    boot_usd: Numbers
    usd_per_second: Numbers
    left_seconds: Numbers
    is_starting: BoolArray | np.bool_


def displacement_usd_per_second(
    restart: Restart, value_of_time: Numbers, for_limits: Numbers = 0.0
) -> FloatArray:
    """Return the cost of two boots and of a restart, in $ per second of what it is compared over.

    Args:
        restart: of the job that loses what it holds.
        value_of_time: of that job, $ per second.
        for_limits: what its use of the limits is worth, $ per second.
    """
    idle_seconds = _BOOTS * restart.ready_seconds + restart.pause_seconds
    usd = _BOOTS * restart.boot_usd + restart.pause_seconds * restart.usd_per_second
    usd = usd + idle_seconds * (value_of_time + for_limits)
    until_ready = np.where(restart.is_starting, restart.ready_seconds, np.inf)
    spread: FloatArray = usd / np.maximum(
        np.minimum(restart.left_seconds, until_ready), LEAST_SECONDS
    )
    return spread


def lost_share(
    sizes: Sizes, held: tuple[IntArray, IntArray], starting: IntArray | int
) -> FloatArray:
    """Return which share of what is held is given up while it starts, by changing to each size.

    What does not train yet goes first; another offer gives all of it up.

    Args:
        sizes: the allocations that may be changed to.
        held: the offer that is held, and how many instances of it.
        starting: how many of these do not train yet.
    """
    offer, instances = held
    fewer = np.where(sizes.offer == offer, instances - sizes.instances, instances)
    share: FloatArray = np.clip(fewer, 0, starting) / np.maximum(instances, 1)
    return share
