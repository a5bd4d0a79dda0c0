"""Allocations of many jobs within shared limits, at nearly the greatest total value.

At given prices of the limits each job takes the allocation of the highest value net of its price.
The sum of these net values and of the limits' capacity at its prices bounds the value of every
plan (Lagrange; Everett 1963). Cutting planes find the prices of the least bound (Kelley 1960).
Prices are then raised until all takes fit; the remaining capacity is filled greedily by value. For
few jobs branch and bound finds the best of what the bound leaves open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy  # its parts are imported when first used, which takes half a second

from autoscaler.domain.errors import SolverError
from autoscaler.economics.scarcity.fluid import starts
from autoscaler.economics.supply.supply import BoolArray, IntArray, fits
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.marginal.exact import SolverLimits, solve_exactly

# Relative precision of the bound at which the search for prices ends.
_PRECISION = 1e-5
_MOST_CUTS = 200
# Relative raises of the prices, tried in turn until the allocations of all jobs fit.
_RAISES = (0.0, *(1e-6 * 2.0 ** np.arange(32)))
_MOST_FILLINGS = 60
_LEAST_GAIN = 1e-9


@dataclass(frozen=True, eq=False)
class Columns:
    """The D allocations that n jobs bid for, grouped by job; the first of equal ones is preferred.

    Attributes:
        job: index of the job of each allocation, ascending, (D,).
        value: value over holding nothing, $ per second, (D,); above 0.
        uses: use of each limit, (R, D); at most `room`.
        room: capacity of each limit, (R,).
        held: indices of the present allocations, at most one of each job; empty if unknown.
    """

    job: IntArray
    value: FloatArray
    uses: FloatArray
    room: FloatArray
    held: IntArray

    @cached_property
    def first(self) -> IntArray:
        """Index of the first column of each job that has any."""
        return starts(self.job)

    @cached_property
    def counts(self) -> IntArray:
        """Number of columns of each job that has any."""
        return np.diff(self.first, append=len(self.job))


@dataclass(frozen=True, slots=True, eq=False)
class PricedAllocation:
    """Allocations of the jobs, and how good they are.

    Attributes:
        chosen: indices of the columns taken, at most one of each job.
        prices: price of a unit of each limit, $ per second, (R,).
        gap: upper bound on the distance to the best value, $ per second.
        trouble: error of the solver; None if it succeeded.
    """

    chosen: IntArray
    prices: FloatArray
    gap: float
    trouble: str | None = None


def allocate(columns: Columns, effort: SolverLimits) -> PricedAllocation:
    """Return allocations of nearly the greatest total value; of the greatest for few jobs.

    The present allocations stay unless others are worth more. Nothing is raised: if the solver
    finds no prices, the present allocations are extended greedily by value.
    """
    prices, trouble = np.zeros(len(columns.room)), None
    if not len(columns.job):
        return PricedAllocation(np.empty(0, dtype=np.int64), prices, 0.0)
    binding = np.flatnonzero(~fits(_largest_uses(columns).sum(axis=1), columns.room))
    within = replace(columns, uses=columns.uses[binding], room=columns.room[binding])
    free = np.zeros(len(binding))
    bound = _PricedTakes(within, free).worth
    chosen = _filled_greedily(within, _held_that_fit(within), free)
    try:
        prices[binding], bound = _prices_of_least_bound(within)
        taken = _takes_that_fit(within, prices[binding])
        chosen = _better(within, chosen, _filled_greedily(within, taken, prices[binding]))
        if len(within.first) <= effort.exact_jobs and _gap(within, chosen, bound) > 0:
            exact, bound = _polished(within, chosen, (prices[binding], bound), effort)
            chosen = _better(within, chosen, exact)
    except SolverError as error:
        trouble = str(error)
    return PricedAllocation(chosen, prices, _gap(within, chosen, bound), trouble)


def _polished(
    columns: Columns, chosen: IntArray, priced: tuple[FloatArray, float], effort: SolverLimits
) -> tuple[IntArray, float]:
    """Return the best columns by branch and bound, and an upper bound on their value.

    A column that lowers the bound at the prices below the value of the chosen columns is in no
    better plan, and is left out.

    Raises:
        SolverError: branch and bound finds no solution.
    """
    prices, bound = priced
    value = float(columns.value[chosen].sum())
    net_value = columns.value - prices @ columns.uses
    best_net_value = np.maximum(np.maximum.reduceat(net_value, columns.first), 0.0)
    lost_value = np.repeat(best_net_value, columns.counts) - net_value
    open_columns = np.flatnonzero(lost_value <= bound - value + _LEAST_GAIN * bound)
    exact, exact_bound = solve_exactly(
        columns.job[open_columns],
        columns.value[open_columns],
        columns.uses[:, open_columns],
        columns.room,
        effort.seconds,
    )
    return open_columns[exact], max(min(exact_bound, bound), value)


def _better(columns: Columns, first: IntArray, second: IntArray) -> IntArray:
    """Return the second columns if they are worth more, else the first."""
    value = columns.value[first].sum()
    return second if columns.value[second].sum() > value + _LEAST_GAIN * value else first


def _gap(columns: Columns, chosen: IntArray, bound: float) -> float:
    """Return the distance of the columns to the bound; 0 below the precision of a sum."""
    gap = bound - float(columns.value[chosen].sum())
    return gap if gap > _LEAST_GAIN * abs(bound) else 0.0


def _held_that_fit(columns: Columns) -> IntArray:
    """Return the held columns; none if they exceed a limit."""
    is_within = fits(columns.uses[:, columns.held].sum(axis=1), columns.room).all()
    return columns.held if is_within else columns.held[:0]


class _PricedTakes:
    """Column that each job takes at given prices; `worth` is the total value net of prices."""

    def __init__(self, columns: Columns, prices: FloatArray) -> None:
        net_value = columns.value - prices @ columns.uses
        best_net_value = np.maximum.reduceat(net_value, columns.first)
        (best,) = np.nonzero(
            (net_value == np.repeat(best_net_value, columns.counts)) & (net_value > 0)
        )
        self.chosen: IntArray = best[starts(columns.job[best])]
        self.worth = float(np.maximum(best_net_value, 0.0).sum())
        self.uses: FloatArray = columns.uses[:, self.chosen].sum(axis=1)


def _prices_of_least_bound(columns: Columns) -> tuple[FloatArray, float]:
    """Return prices at which the bound is nearly the least, and the bound in $ per second."""
    room, most = columns.room, _prohibitive_prices(columns)
    prices = np.zeros(len(room))
    best_prices, bound = prices, np.inf
    slopes: list[FloatArray] = []
    heights: list[float] = []
    for _ in range(_MOST_CUTS):
        taking = _PricedTakes(columns, prices)
        height = taking.worth + float(prices @ room)
        if height < bound:
            best_prices, bound = prices, height
        slope = room - taking.uses
        slopes.append(slope)
        heights.append(height - float(slope @ prices))
        if not len(room):
            break
        prices, least = _lowest(np.array(slopes), np.array(heights), most)
        if bound - least <= _PRECISION * bound:
            break
    return best_prices, bound


def _lowest(slopes: FloatArray, heights: FloatArray, most: FloatArray) -> tuple[FloatArray, float]:
    """Return the minimum, within [0, most], of the highest of the planes, and its height.

    Raises:
        SolverError: the linear program fails.
    """
    if len(most) == 1:
        price, height = _minimise_lines(slopes[:, 0], heights, float(most[0]))
        return np.array([price]), height
    scale = max(float(np.abs(heights).max()), 1e-300)
    unit = np.maximum(most, 1e-300)
    matrix = np.column_stack([slopes * unit / scale, -np.ones(len(slopes))])
    result = scipy.optimize.linprog(
        np.append(np.zeros(len(most)), 1.0),
        A_ub=matrix,
        b_ub=-heights / scale,
        bounds=[*((0.0, 1.0) for _ in most), (None, None)],
    )
    if result.status != 0 or result.x is None:
        raise SolverError(f"the prices of the limits were not found: {result.message}")
    return result.x[:-1] * unit, float(result.x[-1]) * scale


def _minimise_lines(slopes: FloatArray, heights: FloatArray, most: float) -> tuple[float, float]:
    """Return the minimum for one price: at an end, or where two lines cross."""
    first, second = np.triu_indices(len(slopes), 1)
    slope_difference = slopes[first] - slopes[second]
    crosses = slope_difference != 0
    crossings = (heights[second] - heights[first])[crosses] / slope_difference[crosses]
    prices = np.concatenate([[0.0, most], np.clip(crossings, 0.0, most)])
    highest = (heights[:, None] + slopes[:, None] * prices).max(axis=0)
    best = int(highest.argmin())
    return float(prices[best]), float(highest[best])


def _largest_uses(columns: Columns) -> FloatArray:
    """Return the most that each job might use of each limit, (R, n)."""
    return np.maximum.reduceat(columns.uses, columns.first, axis=1)


def _prohibitive_prices(columns: Columns) -> FloatArray:
    """Return a price of each limit at which no job uses any of it, (R,)."""
    used = columns.uses > 0
    density = np.where(used, columns.value / np.where(used, columns.uses, 1.0), 0.0)
    prices: FloatArray = 1.01 * density.max(axis=1)
    return prices


def _takes_that_fit(columns: Columns, prices: FloatArray) -> IntArray:
    """Return the columns taken at the lowest of the raised prices at which all fit."""
    for raised in _RAISES:
        taking = _PricedTakes(columns, prices * (1.0 + raised))
        if fits(taking.uses, columns.room).all():
            return taking.chosen
    return np.empty(0, dtype=np.int64)


def _filled_greedily(columns: Columns, taken: IntArray, prices: FloatArray) -> IntArray:
    """Return the columns after filling the remaining capacity, most value per use first."""
    weights = np.where(prices > 0, prices, 1e-9 / np.maximum(columns.room, 1e-12))
    jobs = int(columns.job[-1]) + 1
    value, uses = np.zeros(jobs), np.zeros((len(columns.room), jobs))
    chosen, chosen_by_job = taken, np.full(jobs, -1)
    chosen_by_job[columns.job[taken]] = taken
    least = _LEAST_GAIN * float(columns.value.max())
    for _ in range(_MOST_FILLINGS):
        job = columns.job[chosen]
        value[job], uses[:, job] = columns.value[chosen], columns.uses[:, chosen]
        given = chosen_by_job[chosen_by_job >= 0]
        free = columns.room - columns.uses[:, given].sum(axis=1)
        gain = columns.value - value[columns.job]
        (rows,) = np.nonzero(gain > least)
        extra = columns.uses[:, rows] - uses[:, columns.job[rows]]
        bearable = fits(extra, free).all(axis=0)
        rows, extra = rows[bearable], extra[:, bearable]
        if not len(rows):
            break
        density = gain[rows] / np.maximum(weights @ extra, 1e-300)
        order = np.lexsort((-density, columns.job[rows]))
        order = order[starts(columns.job[rows[order]])]
        order = order[np.argsort(-density[order], kind="stable")]
        total = np.cumsum(np.maximum(extra[:, order], 0.0), axis=1)
        fitting = fits(total, free).all(axis=0)
        count = len(order) if fitting.all() else max(int(np.argmin(fitting)), 1)
        chosen = rows[order[:count]]
        chosen_by_job[columns.job[chosen]] = chosen
    return chosen_by_job[chosen_by_job >= 0]


def useful(value: FloatArray, uses: FloatArray, room: FloatArray) -> BoolArray:
    """Return which allocations fit by themselves and are worth more than nothing, (D,)."""
    return np.asarray(fits(uses, room).all(axis=0) & (value > 0))
