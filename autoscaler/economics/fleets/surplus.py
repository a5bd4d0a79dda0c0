"""Surplus of allocations: their worth to jobs beyond their price, where jobs compete.

Array axes are as in `fleet`.
"""

from __future__ import annotations

import numpy as np

from autoscaler.economics.choice.switching import from_nothing, standing_usd
from autoscaler.economics.fleets.fleet import Fleet
from autoscaler.economics.pricing.displacement import (
    LEAST_SECONDS,
    Restart,
    limit_usd_per_second,
    lost_share,
    starting_instances,
)
from autoscaler.economics.supply.sizes import Sizes
from autoscaler.economics.supply.supply import IntArray
from autoscaler.goodput.throughput import FloatArray


def worth_of_jobs(fleet: Fleet, finish_prices: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the worth of each candidate at the job's bid, (J, M), and of nothing, (J,).

    ``S(b) = v + sum_r mu_r(T) u_r(b) - (J(b) - min J) / seconds(b)``. The best b is worth the cost
    of a second without it. Another b is worth less by its extra cost J(b) - min J, spread over the
    seconds(b) to finish on b. J includes the prices of limits and the cost of changing. Without
    the cost of changing it is ``lambda G(b) - p(b)``, with lambda the least ``(v + p + sum_r
    mu_r(T) u_r) / G``. Giving up held instances or a boot under way costs what `displacement`
    computes.

    Symbols: v bid and p price in $ per second, G goodput in useful examples a second, u_r use of
    limit r, and mu(T) `finish_prices`: the prices of a unit of each limit when the job finishes,
    $ per second, (J, R).
    """
    bid, eligible = fleet.bid[:, None], fleet.choices.eligible
    changes, ends = fleet.taken_at_bid, fleet.ends
    for_limits = np.einsum("jr,rjm->jm", finish_prices, fleet.uses)
    paid = ends.usd_per_second + for_limits
    fixed_usd = changes.boot_usd + for_limits * changes.new_share * changes.ready_seconds
    fixed_usd = fixed_usd + standing_usd(changes, paid, bid)
    work = np.broadcast_to(fleet.work[:, None], paid.shape)
    training_seconds = fleet.meanwhile(changes)
    cost, paid_and_waited = np.zeros(paid.shape), paid + bid
    for cells, seconds in fleet.blocks():
        price = paid_and_waited[cells] * seconds
        done_meanwhile = np.minimum(training_seconds[cells] / seconds[:, :, :1], work[cells])
        spent = done_meanwhile * price[:, :, :1]
        price *= work[cells] - done_meanwhile
        spent += price
        cost[cells] = fixed_usd[cells] + spent.mean(axis=0)
    done_meanwhile = np.minimum(training_seconds * fleet.rate[:, :1], work)
    seconds = changes.ready_seconds + changes.pause_seconds + (work - done_meanwhile) / fleet.rate
    least_cost = np.where(eligible, cost, np.inf).min(axis=1)[:, None]
    beyond = (cost - least_cost) / np.maximum(seconds, LEAST_SECONDS)
    return _less_displacement(fleet, bid + for_limits - beyond, for_limits[:, 0])


def keeping_of_jobs(fleet: Fleet, for_limits: FloatArray | float = 0.0) -> FloatArray:
    """Return what each job saves by keeping its held instances, $ per second, (J,).

    `for_limits` is the worth of their use of the limits, $ per second, (J,).
    """
    back = from_nothing(fleet.held, fleet.restart_seconds)
    restart = Restart(
        ready_seconds=back.ready_seconds[:, 0],
        pause_seconds=back.pause_seconds[:, 0],
        boot_usd=back.boot_usd[:, 0],
        usd_per_second=fleet.held.usd_per_second[:, 0],
        left_seconds=fleet.work / fleet.rate[:, 0],
        is_starting=_starting_counts(fleet) > 0,
    )
    lost = limit_usd_per_second(restart, fleet.bid, for_limits)
    return np.where(fleet.has_held, lost, 0.0)


def _less_displacement(
    fleet: Fleet, surplus: FloatArray, for_limits: FloatArray
) -> tuple[FloatArray, FloatArray]:
    eligible, lists = fleet.choices.eligible, fleet.lists
    displacement = keeping_of_jobs(fleet, for_limits)
    kept_surplus = np.where(eligible[:, 0], surplus[:, 0], 0.0)
    best = np.where(eligible, surplus, -np.inf).max(axis=1)
    nothing = np.minimum(np.minimum(0.0, kept_surplus), best) - displacement
    sizes = Sizes(lists.offer, lists.instances, lists.devices_used)
    held = lists.offer[:, :1], lists.instances[:, :1]
    share = lost_share(sizes, held, _starting_counts(fleet)[:, None])
    return surplus - share * displacement[:, None], np.where(fleet.has_held, nothing, 0.0)


def _starting_counts(fleet: Fleet) -> IntArray:
    """Return the number of held instances of each job that do not train yet, (J,)."""
    return np.array([starting_instances(job) for job in fleet.jobs], dtype=np.int64)
