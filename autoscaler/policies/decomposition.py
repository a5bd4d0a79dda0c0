"""One allocation for each of very many jobs within shared limits, by prices of the limits.

At given prices each job takes what is worth most to it beyond what it pays: the sum of that and
of the limits' worth is a bound on every plan (Lagrange; Everett 1963). The prices of the least
bound come by cutting planes (Kelley 1960). What all take at prices a little higher has room, and
what is left over is filled up by worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linprog

from autoscaler.domain.errors import SolverError
from autoscaler.economics.many_fluid import starts
from autoscaler.economics.supply import BoolArray, IntArray, fits
from autoscaler.goodput.throughput import FloatArray

# Prices are looked for until the bound is known to this share.
_PRECISION = 1e-5
_MOST_CUTS = 200
# By how much prices are raised, over and over, until what all take has room.
_RAISES = (0.0, *(1e-6 * 2.0 ** np.arange(32)))
_MOST_FILLINGS = 60
_LEAST_GAIN = 1e-9


@dataclass(frozen=True, eq=False)
class Columns:
    """The D allocations that n jobs bid for, those of each together, of equals the first stands.

    Attributes:
        job: whose each is, rising, (D,).
        value: what it adds to holding nothing, $ per second, (D,); above 0.
        uses: what it takes of each limit, (R, D); no more than there is by itself.
        room: of each limit, (R,).
    """

    job: IntArray
    value: FloatArray
    uses: FloatArray
    room: FloatArray

    @cached_property
    def first(self) -> IntArray:
        """Where the columns of each job that has any begin."""
        return starts(self.job)

    @cached_property
    def counts(self) -> IntArray:
        """How many columns each of those jobs has."""
        return np.diff(self.first, append=len(self.job))


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """What the jobs get.

    Attributes:
        chosen: the columns that are taken, one of a job at most.
        prices: of each limit, $ per second of a unit, (R,).
        gap: how far this may be from the best, $ per second.
        trouble: what the solver failed at, if it did.
    """

    chosen: IntArray
    prices: FloatArray
    gap: float
    trouble: str | None = None


def divide(columns: Columns) -> Division:
    """About the most value in all; never fails: without prices it is filled up by worth alone."""
    prices, trouble = np.zeros(len(columns.room)), None
    if not len(columns.job):
        return Division(np.empty(0, dtype=np.int64), prices, 0.0)
    try:
        prices, bound = _least_bound(columns)
        taken = _within(columns, prices)
    except SolverError as error:
        trouble = str(error)
        bound = _Taking(columns, prices).worth
        taken = np.empty(0, dtype=np.int64)
    chosen = _filled(columns, taken, prices)
    gap = max(bound - float(columns.value[chosen].sum()), 0.0)
    return Division(chosen, prices, gap, trouble)


class _Taking:
    """What each job takes at given prices; `worth` is what all is worth to them beyond those."""

    def __init__(self, columns: Columns, prices: FloatArray) -> None:
        left = columns.value - prices @ columns.uses
        most = np.maximum.reduceat(left, columns.first)
        (best,) = np.nonzero((left == np.repeat(most, columns.counts)) & (left > 0))
        self.chosen: IntArray = best[starts(columns.job[best])]
        self.worth = float(np.maximum(most, 0.0).sum())
        self.uses: FloatArray = columns.uses[:, self.chosen].sum(axis=1)


def _least_bound(columns: Columns) -> tuple[FloatArray, float]:
    """Prices at which the bound is about the least, and that bound."""
    room = columns.room
    binding = ~fits(_largest(columns).sum(axis=1), room)
    dearest = _dearest(columns)
    prices = np.zeros(len(room))
    best, bound = prices, np.inf
    slopes: list[FloatArray] = []
    heights: list[float] = []
    for _ in range(_MOST_CUTS):
        taking = _Taking(columns, prices)
        height = taking.worth + float(prices @ room)
        if height < bound:
            best, bound = prices, height
        slope = room - taking.uses
        slopes.append(slope)
        heights.append(height - float(slope @ prices))
        prices, least = _lowest(
            np.array(slopes), np.array(heights), np.where(binding, dearest, 0.0)
        )
        if bound - least <= _PRECISION * bound:
            break
    return best, bound


def _lowest(slopes: FloatArray, heights: FloatArray, most: FloatArray) -> tuple[FloatArray, float]:
    """Where the highest of planes is the lowest, within [0, most], and how high it is there."""
    (open_to,) = np.nonzero(most > 0)
    if len(open_to) == 1:
        prices = np.zeros(len(most))
        at = int(open_to[0])
        prices[at], height = _lowest_of_lines(slopes[:, at], heights, float(most[at]))
        return prices, height
    scale = max(float(np.abs(heights).max()), 1e-300)
    unit = np.maximum(most, 1e-300)
    matrix = np.column_stack([slopes * unit / scale, -np.ones(len(slopes))])
    found = linprog(
        np.append(np.zeros(len(most)), 1.0),
        A_ub=matrix,
        b_ub=-heights / scale,
        bounds=[*((0.0, 1.0 if each > 0 else 0.0) for each in most), (None, None)],
    )
    if found.status != 0 or found.x is None:
        raise SolverError(f"the prices of the limits were not found: {found.message}")
    return found.x[:-1] * unit, float(found.x[-1]) * scale


def _lowest_of_lines(slopes: FloatArray, heights: FloatArray, most: float) -> tuple[float, float]:
    """The same of one price: at an end, or where two of the lines cross."""
    one, other = np.triu_indices(len(slopes), 1)
    apart = slopes[one] - slopes[other]
    crosses = apart != 0
    crossings = (heights[other] - heights[one])[crosses] / apart[crosses]
    prices = np.concatenate([[0.0, most], np.clip(crossings, 0.0, most)])
    highest = (heights[:, None] + slopes[:, None] * prices).max(axis=0)
    best = int(highest.argmin())
    return float(prices[best]), float(highest[best])


def _largest(columns: Columns) -> FloatArray:
    """The most that each job might take of each limit, (R, n)."""
    return np.maximum.reduceat(columns.uses, columns.first, axis=1)


def _dearest(columns: Columns) -> FloatArray:
    """A price of each limit at which nobody would take any of it, (R,)."""
    used = columns.uses > 0
    density = np.where(used, columns.value / np.where(used, columns.uses, 1.0), 0.0)
    dearest: FloatArray = 1.01 * density.max(axis=1)
    return dearest


def _within(columns: Columns, prices: FloatArray) -> IntArray:
    """What is taken at the least prices above these at which it has room, of those looked at."""
    for raised in _RAISES:
        taking = _Taking(columns, prices * (1.0 + raised))
        if fits(taking.uses, columns.room).all():
            return taking.chosen
    return np.empty(0, dtype=np.int64)


def _filled(columns: Columns, taken: IntArray, prices: FloatArray) -> IntArray:
    """Give the room that is left to who gains most for it, as many at a time as it bears."""
    weights = np.where(prices > 0, prices, 1e-9 / np.maximum(columns.room, 1e-12))
    now = np.full(int(columns.job[-1]) + 1, -1)
    now[columns.job[taken]] = taken
    least = _LEAST_GAIN * float(columns.value.max())
    for _ in range(_MOST_FILLINGS):
        given = now[now >= 0]
        left = columns.room - columns.uses[:, given].sum(axis=1)
        before = now[columns.job]
        has = before >= 0
        gain = columns.value - np.where(has, columns.value[before], 0.0)
        (rows,) = np.nonzero(gain > least)
        extra = columns.uses[:, rows] - np.where(has[rows], columns.uses[:, before[rows]], 0.0)
        bearable = fits(extra, left).all(axis=0)
        rows, extra = rows[bearable], extra[:, bearable]
        if not len(rows):
            break
        density = gain[rows] / np.maximum(weights @ extra, 1e-300)
        order = np.lexsort((-density, columns.job[rows]))
        order = order[starts(columns.job[rows[order]])]
        order = order[np.argsort(-density[order], kind="stable")]
        total = np.cumsum(np.maximum(extra[:, order], 0.0), axis=1)
        fitting = fits(total, left).all(axis=0)
        count = len(order) if fitting.all() else max(int(np.argmin(fitting)), 1)
        chosen = rows[order[:count]]
        now[columns.job[chosen]] = chosen
    return now[now >= 0]


def useful(value: FloatArray, uses: FloatArray, room: FloatArray) -> BoolArray:
    """Which allocations are worth anything and are no more than there is, (D,)."""
    return np.asarray(fits(uses, room).all(axis=0) & (value > 0))
