"""Surplus of allocations: their worth to a job beyond their price, where jobs compete."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.economics.choice.switching import (
    SwitchContext,
    cost_to_finish,
    done_meanwhile,
    switches,
)
from autoscaler.economics.pricing.displacement import (
    LEAST_SECONDS,
    Restart,
    limit_usd_per_second,
    lost_share,
)
from autoscaler.economics.supply.supply import BoolArray
from autoscaler.goodput.throughput import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Surpluses:
    """Worth of every choice to one job, in $ per second.

    Attributes:
        surplus: of each candidate, with the cost of changing to it, (A,).
        nothing: of holding nothing.
    """

    surplus: FloatArray
    nothing: float


def worth(
    at: SwitchContext,
    among: BoolArray,
    value_of_time: float,
    finish_prices: FloatArray,
    work: float,
) -> Surpluses:
    """Return the worth of each candidate to a job that pays the prices of its finish for limits.

    ``S(b) = v + sum_r mu_r(T) u_r(b) - (J(b) - min J) / seconds(b)``. The best b is worth the cost
    of a second without it. Another b is worth less by its extra cost J(b) - min J, spread over the
    seconds(b) to finish on b. J includes the prices of limits and the cost of changing. Without
    the cost of changing it is ``lambda G(b) - p(b)``, with lambda the least ``(v + p + sum_r
    mu_r(T) u_r) / G``. Giving up held instances or a boot under way costs what `displacement`
    computes.

    Symbols: p price in $ per second, G goodput in useful examples a second, u_r use of limit r.

    Args:
        at: what the job may change to, and at what cost.
        among: candidates that it may have, at least one, (A,).
        value_of_time: v, $ per second.
        finish_prices: mu(T), $ per second of a unit of each limit at the job's finish, (R,).
        work: useful examples over which its choice counts.
    """
    candidates = at.candidates
    cost = cost_to_finish(at, value_of_time, work, finish_prices).mean(axis=0)
    changes, rate, held = at.from_held(value_of_time), candidates.rate, candidates.held
    done = 0.0 if held is None else done_meanwhile(float(rate[held]), changes, work)
    seconds = changes.ready_seconds + changes.pause_seconds + (work - done) / rate
    beyond = (cost - cost[among].min()) / np.maximum(seconds, LEAST_SECONDS)
    surplus = value_of_time + finish_prices @ candidates.uses - beyond
    if held is None:
        return Surpluses(surplus, 0.0)
    kept_surplus = float(surplus[held]) if among[held] else 0.0
    highest = float(surplus[among].max())
    for_limits = float(finish_prices @ candidates.uses[:, held])
    displacement = keeping_usd_per_second(at, value_of_time, work, for_limits)
    sizes = candidates.sizes
    share = lost_share(sizes, (sizes.offer[held], sizes.instances[held]), at.starting_instances)
    return Surpluses(
        surplus - share * displacement, min(0.0, kept_surplus, highest) - displacement
    )


def keeping_usd_per_second(
    at: SwitchContext, value_of_time: float, work: float, for_limits: float = 0.0
) -> float:
    """Return the saving of keeping what the job holds, $ per second; 0 for nothing.

    `for_limits` is the worth of its use of the limits, $ per second.
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
    return float(limit_usd_per_second(restart, value_of_time, for_limits))
