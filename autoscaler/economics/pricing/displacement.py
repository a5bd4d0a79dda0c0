"""Cost of displacing a job from what it holds: one boot of each of the two jobs.

The displacing job boots, and the displaced job boots again later. Meanwhile neither trains, and
both use limits. A boot under way earns nothing before it ends, so its replacement must repay two
boots within the time of one boot. Booted instances are compared over the rest of their job.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.supply.sizes import Sizes
from autoscaler.economics.supply.supply import BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray

Numbers = FloatArray | np.float64 | float
# One boot of the displacing job, and one of the displaced job.
_BOOTS = 2.0
# Shortest time over which a cost is spread.
LEAST_SECONDS = 1.0


def starting_instances(job: JobSnapshot) -> int:
    """Return the number of held instances of a job that do not train yet."""
    held, trained = job.held, job.trained
    if held is None or held == trained:
        return 0
    if trained is None or (trained.offer, trained.devices_used) != (held.offer, held.devices_used):
        return held.instances
    return max(held.instances - trained.instances, 0)


def starting_share(job: JobSnapshot) -> float:
    """Return the share of a job's held instances that do not train yet."""
    return 0.0 if job.held is None else starting_instances(job) / job.held.instances


@dataclass(frozen=True, slots=True, eq=False)
class Restart:
    """Restart of what a job holds from nothing: numbers, or arrays of one shape for many jobs.

    Attributes:
        ready_seconds: time from the order to the first step.
        pause_seconds: added by a start from a checkpoint.
        boot_usd: price paid until the first step.
        usd_per_second: price of what is held.
        left_seconds: time to finish the job on what is held.
        is_starting: whether some held instances do not train yet.
    """

    ready_seconds: Numbers
    pause_seconds: Numbers
    boot_usd: Numbers
    usd_per_second: Numbers
    left_seconds: Numbers
    is_starting: BoolArray | np.bool_


def limit_usd_per_second(
    restart: Restart, value_of_time: Numbers, for_limits: Numbers = 0.0
) -> FloatArray:
    """Return the cost of two boots and a restart, in $ per second.

    ``((2 ready + pause) (v + m) + 2 boot_usd + pause p) / T``. T is the rest of the job in
    seconds, or the time of one boot while held instances start. p is the price of what is held in
    $ per second, and v and m are the arguments below.

    Args:
        restart: restart of the displaced job.
        value_of_time: of the displaced job, $ per second (v).
        for_limits: worth of its use of the limits, $ per second (m).
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
    """Return the share of the held instances that a change gives up while they start.

    The result broadcasts over `sizes`. Instances that do not train yet are given up first. A
    change to another offer gives up all of them.

    Args:
        sizes: allocations to change to.
        held: index of the held offer, and its number of instances.
        starting: number of held instances that do not train yet.
    """
    offer, instances = held
    fewer = np.where(sizes.offer == offer, instances - sizes.instances, instances)
    share: FloatArray = np.clip(fewer, 0, starting) / np.maximum(instances, 1)
    return share
