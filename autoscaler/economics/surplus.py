"""What an allocation is worth to a job beyond its price, where jobs compete for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.economics.displacing import (
    LEAST_SECONDS,
    Restart,
    displacement_usd_per_second,
    lost_share,
)
from autoscaler.economics.supply import BoolArray
from autoscaler.economics.switching import Ground, cost_to_finish, done_meanwhile, switches
from autoscaler.goodput.throughput import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Worth:
    """What everything is worth to one job, in $ per second.

    Attributes:
        surplus: of each candidate, changing to it included, (A,).
        nothing: of holding nothing.
    """

    surplus: FloatArray
    nothing: float


def worth(
    at: Ground, among: BoolArray, value_of_time: float, finish_prices: FloatArray, work: float
) -> Worth:
    """What everything is worth to a job that pays the prices of its own finish for the limits.

    ``S(b) = v + sum_r mu_r(T) u_r(b) - (J(b) - min J) / seconds(b)``: at the best b what a second
    without it would cost, elsewhere less by what it costs more to finish there, for each second
    that this takes. J has the prices of the limits and the costs of changing in it. Without those
    costs it is ``lambda G(b) - p(b)`` with lambda the least ``(v + p + sum_r mu_r(T) u_r) / G``.
    Giving up what is held, or a boot that is under way, costs what `displacing` says.

    Args:
        at: from where it would change.
        among: which candidates it may have, (A,); at least one.
        value_of_time: v, $ per second.
        finish_prices: mu(T), what a unit of each limit is worth per second when it finishes, (R,).
        work: useful examples over which its choice counts.
    """
    candidates = at.candidates
    cost = cost_to_finish(at, value_of_time, work, finish_prices).mean(axis=0)
    taken, rate, held = at.from_held(value_of_time), candidates.rate, candidates.held
    done = 0.0 if held is None else done_meanwhile(float(rate[held]), taken, work)
    seconds = taken.ready_seconds + taken.pause_seconds + (work - done) / rate
    beyond = (cost - cost[among].min()) / np.maximum(seconds, LEAST_SECONDS)
    surplus = value_of_time + finish_prices @ candidates.uses - beyond
    if held is None:
        return Worth(surplus, 0.0)
    kept = float(surplus[held]) if among[held] else 0.0
    highest = float(surplus[among].max())
    for_limits = float(finish_prices @ candidates.uses[:, held])
    lost = keeping_usd_per_second(at, value_of_time, work, for_limits)
    sizes = candidates.sizes
    share = lost_share(sizes, (sizes.offer[held], sizes.instances[held]), at.starting_instances)
    return Worth(surplus - share * lost, min(0.0, kept, highest) - lost)


def keeping_usd_per_second(
    at: Ground, value_of_time: float, work: float, for_limits: float = 0.0
) -> float:
    """Return what the job saves by keeping what it holds, $ per second; 0 if it holds nothing.

    Where no limit is in the way, it is never dropped.
    """
    candidates, held = at.candidates, at.candidates.held
    if held is None:
        return 0.0
    back = switches(at, None, np.array([held]))
    restart = Restart(
        ready_seconds=back.ready_seconds[0],
        pause_seconds=back.pause_seconds[0],
        boot_usd=back.boot_usd[0],
        usd_per_second=candidates.usd_per_second[held],
        left_seconds=work / candidates.rate[held],
        is_starting=np.bool_(at.starting_instances > 0),
    )
    return float(displacement_usd_per_second(restart, value_of_time, for_limits))
