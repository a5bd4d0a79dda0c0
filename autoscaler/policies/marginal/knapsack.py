"""Allocations of many jobs within shared limits, at the greatest total value.

The problem is a multiple-choice knapsack. Branch and bound solves it exactly for few jobs. For
many jobs shadow prices of the linear relaxation are used, which splits at most one job per binding
limit.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts are imported when first used, which takes half a second

from autoscaler.domain.errors import SolverError
from autoscaler.economics.supply.supply import BoolArray, IntArray, fits
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.marginal.relaxation import best_mixture

# HiGHS ignores differences below 1e-6; values are scaled to this largest value.
_SCALE = 1e3
_PRECISION = 1e-9
# Column taken by each job (job index -> column); jobs without one get nothing.
_Choices = Mapping[int, int]

# Number of columns compared with each other at once.
_BLOCK = 256


@dataclass(frozen=True, slots=True, eq=False)
class Bid:
    """Allocations of one job.

    Attributes:
        value: value of each of the C allocations, $ per second, (C,).
        uses: use of each limit, (R, C).
        nothing: value of holding nothing, $ per second.
        incumbent: index of the present allocation; None if there is none.
    """

    value: FloatArray
    uses: FloatArray
    nothing: float
    incumbent: int | None = None


@dataclass(frozen=True, slots=True)
class SolverLimits:
    """Bounds on the search: exact up to `exact_jobs` jobs, for at most `seconds`."""

    exact_jobs: int = 24
    seconds: float = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class KnapsackSolution:
    """Allocations of the jobs, and how good they are.

    Attributes:
        choices: index of the allocation of each of the n jobs; None for nothing.
        shadow_prices: value of one more unit of each limit, $ per second, (R,), in the linear
            relaxation.
        gap: upper bound on the distance to the best value, $ per second.
        trouble: error of the solver, after which the choices are greedy; None if it succeeded.
    """

    choices: tuple[int | None, ...]
    shadow_prices: FloatArray
    gap: float
    trouble: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """The D useful allocations of all jobs.

    Attributes:
        job: index of the job of each allocation, (D,).
        choice: index in the job's bid, (D,).
        value: value over holding nothing, $ per second, (D,); above 0.
        uses: use of each limit, (R, D).
        room: capacity of each limit, (R,).
        incumbents: present column by job index; empty if the present columns exceed a limit.
    """

    job: IntArray
    choice: IntArray
    value: FloatArray
    uses: FloatArray
    room: FloatArray
    incumbents: Mapping[int, int]


def solve_knapsack(
    bids: Sequence[Bid], maximum: FloatArray, effort: SolverLimits
) -> KnapsackSolution:
    """Return the choices of the greatest total value within `maximum` of each limit, (R,).

    The present allocations stay unless others are worth more. Nothing is raised: if the solver
    fails, the present allocations are extended greedily and `trouble` holds the error.
    """
    columns = _columns(bids, np.maximum(maximum, 0.0))
    if not len(columns.job):
        return KnapsackSolution((None,) * len(bids), np.zeros(len(maximum)), 0.0)
    chosen = _filled_greedily(columns, columns.incumbents)
    prices, trouble = np.zeros(len(maximum)), None
    try:
        share, prices, bound = _relaxed(columns)
        chosen = _better(columns, chosen, _rounded(columns, share))
        if len(bids) <= effort.exact_jobs and _gap(columns, chosen, bound) > 0:
            exact, bound = _exact(columns, effort.seconds)
            chosen = _better(columns, chosen, exact)
    except SolverError as error:
        trouble = str(error)
        bound = float(sum(columns.value[columns.job == job].max() for job in set(columns.job)))
    return KnapsackSolution(
        choices=tuple(
            int(columns.choice[chosen[job]]) if job in chosen else None for job in range(len(bids))
        ),
        shadow_prices=prices,
        gap=_gap(columns, chosen, bound),
        trouble=trouble,
    )


def _better(columns: _Columns, first: _Choices, second: _Choices) -> _Choices:
    """Return the second choices if they are worth more, else the first."""
    most = _value(columns, first)
    return second if _value(columns, second) > most + _PRECISION * most else first


def _gap(columns: _Columns, chosen: _Choices, bound: float) -> float:
    """Return the distance of the choices to the bound; 0 below the precision of a sum."""
    gap = bound - _value(columns, chosen)
    return gap if gap > _PRECISION * abs(bound) else 0.0


def _value(columns: _Columns, chosen: _Choices) -> float:
    """Return the total value of the choices, $ per second."""
    return float(columns.value[list(chosen.values())].sum())


def _columns(bids: Sequence[Bid], room: FloatArray) -> _Columns:
    """Return the columns of all bids without infeasible and dominated allocations."""
    kept = [_undominated(bid, room) for bid in bids]
    counts = [len(choices) for choices in kept]
    job = np.repeat(np.arange(len(bids)), counts)
    choice = np.concatenate([np.empty(0, np.int64), *kept])
    value = [bid.value[choices] - bid.nothing for bid, choices in zip(bids, kept, strict=True)]
    uses = [bid.uses[:, choices] for bid, choices in zip(bids, kept, strict=True)]
    all_uses = np.concatenate([np.empty((len(room), 0)), *uses], axis=1)
    incumbents = [-1 if bid.incumbent is None else bid.incumbent for bid in bids]
    (incumbent_columns,) = np.nonzero(choice == np.array(incumbents, dtype=np.int64)[job])
    is_within = fits(all_uses[:, incumbent_columns].sum(axis=1), room).all()
    return _Columns(
        job=job,
        choice=choice,
        value=np.concatenate([np.empty(0), *value]),
        uses=all_uses,
        room=room,
        incumbents=dict(
            zip(job[incumbent_columns].tolist(), incumbent_columns.tolist(), strict=True)
        )
        if is_within
        else {},
    )


def _undominated(bid: Bid, room: FloatArray) -> IntArray:
    """Return indices by value, highest first, without dominated ones; equals keep the present."""
    possible = fits(bid.uses, room).all(axis=0) & (bid.value > bid.nothing)
    is_now = np.arange(len(bid.value)) == bid.incumbent
    order = np.lexsort((~is_now, -bid.value))
    order = order[possible[order]]
    kept = np.empty(0, dtype=np.int64)
    for start in range(0, len(order), _BLOCK):
        block = order[start : start + _BLOCK]
        block = block[~_no_less(bid.uses[:, kept], bid.uses[:, block]).any(axis=0)]
        dominated_within = np.triu(_no_less(bid.uses[:, block], bid.uses[:, block]), k=1)
        kept = np.concatenate([kept, block[~dominated_within.any(axis=0)]])
    return kept


def _no_less(first: FloatArray, second: FloatArray) -> BoolArray:
    """Return whether each use (R, B) is at least each use (R, A) of every limit, (A, B)."""
    return np.asarray((first[:, :, None] <= second[:, None, :]).all(axis=0))


def _relaxed(columns: _Columns) -> tuple[FloatArray, FloatArray, float]:
    """Return the share of each column, (D,), the limits' prices, (R,), and the mixture's value.

    Raises:
        SolverError: the linear program fails.
    """
    binding = _binding(columns)
    prices = np.zeros(len(columns.room))
    if len(binding) <= 1:
        use, room = columns.uses[binding].sum(axis=0), float(columns.room[binding].sum())
        mixture = best_mixture(columns.job, columns.value, use, room)
        prices[binding] = mixture.price
        return mixture.share, prices, mixture.value
    scale = _scale(columns)
    matrix, most = _constraints(columns, binding)
    result = scipy.optimize.linprog(
        -scale * columns.value, A_ub=matrix, b_ub=most, bounds=(0.0, 1.0)
    )
    if result.status != 0 or result.x is None:
        raise SolverError(f"the linear relaxation failed: {result.message}")
    jobs = len(most) - len(binding)
    prices[binding] = np.maximum(-result.ineqlin.marginals[jobs:], 0.0) / scale
    share: FloatArray = result.x
    return share, prices, float(columns.value @ share)


def _exact(columns: _Columns, seconds: float) -> tuple[_Choices, float]:
    """Return the best choices, and an upper bound on their value.

    Raises:
        SolverError: branch and bound finds no choices, or they exceed a limit.
    """
    scale = _scale(columns)
    matrix, most = _constraints(columns, _binding(columns))
    result = scipy.optimize.milp(
        -scale * columns.value,
        integrality=np.ones(len(columns.value), dtype=np.int64),
        bounds=scipy.optimize.Bounds(0.0, 1.0),
        constraints=scipy.optimize.LinearConstraint(matrix, -np.inf, most),
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    if result.x is None:
        raise SolverError(f"branch and bound found no solution: {result.message}")
    chosen = {
        int(columns.job[column]): column for column in np.nonzero(result.x > 0.5)[0].tolist()
    }
    if not fits(columns.uses[:, list(chosen.values())].sum(axis=1), columns.room).all():
        raise SolverError("branch and bound exceeded a limit")
    return chosen, -float(result.mip_dual_bound) / scale


def _scale(columns: _Columns) -> float:
    """Return the factor that scales the largest value to `_SCALE`."""
    return _SCALE / max(float(columns.value.max()), sys.float_info.min * _SCALE)


def _binding(columns: _Columns) -> IntArray:
    """Return the indices of the limits that the largest use of all jobs together exceeds."""
    first = np.flatnonzero(np.diff(columns.job, prepend=-1))
    largest = np.maximum.reduceat(columns.uses, first, axis=1)
    binding: IntArray = np.flatnonzero(~fits(largest.sum(axis=1), columns.room))
    return binding


def _constraints(columns: _Columns, binding: IntArray) -> tuple[Any, FloatArray]:
    """Return the matrix of one column per job and of the binding limits, and the maxima.

    The matrix is sparse, a type that the stubs of `linprog` lack.
    """
    _, job = np.unique(columns.job, return_inverse=True)
    count = len(job)
    rows = scipy.sparse.csr_array((np.ones(count), (job, np.arange(count))))
    matrix = scipy.sparse.vstack(
        [rows, scipy.sparse.csr_array(columns.uses[binding])], format="csr"
    )
    return matrix, np.concatenate([np.ones(rows.shape[0]), columns.room[binding]])


def _rounded(columns: _Columns, share: FloatArray) -> _Choices:
    """Return the whole columns of the mixture, with the remaining capacity filled greedily."""
    chosen: dict[int, int] = {}
    free = columns.room
    for column in np.nonzero(share > 1.0 - 1e-6)[0].tolist():
        if fits(columns.uses[:, column], free).all():
            chosen[int(columns.job[column])] = column
            free = free - columns.uses[:, column]
    return _filled_greedily(columns, chosen)


def _filled_greedily(columns: _Columns, chosen: _Choices) -> _Choices:
    """Return the choices after greedy steps in the remaining capacity, by value per use."""
    chosen = dict(chosen)
    scaled = (columns.uses / np.maximum(columns.room, 1e-12)[:, None]).sum(axis=0)
    least = _PRECISION * float(columns.value.max())
    while True:
        taken = list(chosen.values())
        present = np.full(int(columns.job.max()) + 1, -1)
        present[list(chosen)] = taken
        present_columns = present[columns.job]
        has_column = present_columns >= 0
        extra_uses = columns.uses - np.where(has_column, columns.uses[:, present_columns], 0.0)
        gain = columns.value - np.where(has_column, columns.value[present_columns], 0.0)
        cost = scaled - np.where(has_column, scaled[present_columns], 0.0)
        free = columns.room - columns.uses[:, taken].sum(axis=1)
        open_steps = fits(extra_uses, free).all(axis=0) & (gain > least)
        if not open_steps.any():
            return chosen
        density = np.where(open_steps, gain / np.maximum(cost, 1e-12), -np.inf)
        best = int(np.argmax(density))
        chosen[int(columns.job[best])] = best
