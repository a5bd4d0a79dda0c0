"""One allocation for each of many jobs within shared limits: the most value in all.

A multiple-choice knapsack: exactly by branch and bound where jobs are few, by shadow prices
(the linear relaxation, of which at most one job per binding limit is split) where they are many.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array, vstack

from autoscaler.domain.errors import SolverError
from autoscaler.economics.supply import BoolArray, IntArray, fits
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.relaxation import best_mixture

# HiGHS counts differences below 1e-6 as none; values are scaled so that the largest is this.
_SCALE = 1e3
_PRECISION = 1e-9
# The column of each job that gets one.
_Choices = Mapping[int, int]

# Columns that are compared with each other at once.
_BLOCK = 256


@dataclass(frozen=True, slots=True, eq=False)
class Bid:
    """What one job offers.

    Attributes:
        value: of each of its C allocations, $ per second, (C,).
        uses: what each takes of each limit, (R, C).
        nothing: the value of holding nothing, $ per second.
        incumbent: which of them the job has now, if any.
    """

    value: FloatArray
    uses: FloatArray
    nothing: float
    incumbent: int | None = None


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to look for the best: exactly up to `exact_jobs`, and for no longer than this."""

    exact_jobs: int = 24
    seconds: float = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Award:
    """What each job gets.

    Attributes:
        choices: for each of the n jobs the index of its allocation, or None for nothing.
        shadow_prices: what one more unit of each limit would be worth, $ per second, (R,); that
            of the linear relaxation.
        gap: how far this may be from the best, $ per second.
        trouble: what the solver failed at, if it did; the choices are then by worth per use.
    """

    choices: tuple[int | None, ...]
    shadow_prices: FloatArray
    gap: float
    trouble: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """All useful allocations of all jobs in a row, D of them.

    Attributes:
        job: whose each is, (D,).
        choice: its index in the job's bid, (D,).
        value: what it adds to holding nothing, $ per second, (D,); above 0.
        uses: (R, D).
        room: (R,).
        incumbents: by job, what it has now; empty if that is more than there is room for.
    """

    job: IntArray
    choice: IntArray
    value: FloatArray
    uses: FloatArray
    room: FloatArray
    incumbents: Mapping[int, int]


def award(bids: Sequence[Bid], maximum: FloatArray, effort: Effort) -> Award:
    """The choices of most value that are within `maximum` of each limit, (R,).

    What there is now stands unless something is worth more. Never fails: where the solver does,
    what there is now is filled up greedily and `trouble` says so.
    """
    columns = _columns(bids, np.maximum(maximum, 0.0))
    if not len(columns.job):
        return Award((None,) * len(bids), np.zeros(len(maximum)), 0.0)
    chosen = _filled(columns, columns.incumbents)
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
    return Award(
        choices=tuple(
            int(columns.choice[chosen[job]]) if job in chosen else None for job in range(len(bids))
        ),
        shadow_prices=prices,
        gap=_gap(columns, chosen, bound),
        trouble=trouble,
    )


def _better(columns: _Columns, first: _Choices, second: _Choices) -> _Choices:
    """The second if it is worth more."""
    most = _value(columns, first)
    return second if _value(columns, second) > most + _PRECISION * most else first


def _gap(columns: _Columns, chosen: _Choices, bound: float) -> float:
    """How far the choices are from the bound; 0 where that is the precision of a sum."""
    gap = bound - _value(columns, chosen)
    return gap if gap > _PRECISION * abs(bound) else 0.0


def _value(columns: _Columns, chosen: _Choices) -> float:
    return float(columns.value[list(chosen.values())].sum())


def _columns(bids: Sequence[Bid], room: FloatArray) -> _Columns:
    """Without what no limit bears, and what another of the same job does better with no more."""
    kept = [_undominated(bid, room) for bid in bids]
    counts = [len(choices) for choices in kept]
    job = np.repeat(np.arange(len(bids)), counts)
    choice = np.concatenate([np.empty(0, np.int64), *kept])
    value = [bid.value[choices] - bid.nothing for bid, choices in zip(bids, kept, strict=True)]
    uses = [bid.uses[:, choices] for bid, choices in zip(bids, kept, strict=True)]
    every_use = np.concatenate([np.empty((len(room), 0)), *uses], axis=1)
    has_now = [-1 if bid.incumbent is None else bid.incumbent for bid in bids]
    (now,) = np.nonzero(choice == np.array(has_now, dtype=np.int64)[job])
    bearable = fits(every_use[:, now].sum(axis=1), room).all()
    return _Columns(
        job=job,
        choice=choice,
        value=np.concatenate([np.empty(0), *value]),
        uses=every_use,
        room=room,
        incumbents=dict(zip(job[now].tolist(), now.tolist(), strict=True)) if bearable else {},
    )


def _undominated(bid: Bid, room: FloatArray) -> IntArray:
    """Indices in the order of their value, the highest first; of equals what there is now."""
    possible = fits(bid.uses, room).all(axis=0) & (bid.value > bid.nothing)
    is_now = np.arange(len(bid.value)) == bid.incumbent
    order = np.lexsort((~is_now, -bid.value))
    order = order[possible[order]]
    kept = np.empty(0, dtype=np.int64)
    for start in range(0, len(order), _BLOCK):
        block = order[start : start + _BLOCK]
        block = block[~_no_less(bid.uses[:, kept], bid.uses[:, block]).any(axis=0)]
        among = np.triu(_no_less(bid.uses[:, block], bid.uses[:, block]), k=1)
        kept = np.concatenate([kept, block[~among.any(axis=0)]])
    return kept


def _no_less(first: FloatArray, second: FloatArray) -> BoolArray:
    """Where the second use, (R, B), is in no limit less than the first, (R, A): (A, B)."""
    return np.asarray((first[:, :, None] <= second[:, None, :]).all(axis=0))


def _relaxed(columns: _Columns) -> tuple[FloatArray, FloatArray, float]:
    """Shares of each column, (D,), prices of the limits, (R,), and the value of that mixture."""
    binding = _binding(columns)
    prices = np.zeros(len(columns.room))
    if len(binding) <= 1:
        use, room = columns.uses[binding].sum(axis=0), float(columns.room[binding].sum())
        mixture = best_mixture(columns.job, columns.value, use, room)
        prices[binding] = mixture.price
        return mixture.share, prices, mixture.value
    scale = _scale(columns)
    matrix, most = _constraints(columns, binding)
    found = linprog(-scale * columns.value, A_ub=matrix, b_ub=most, bounds=(0.0, 1.0))
    if found.status != 0 or found.x is None:
        raise SolverError(f"the linear relaxation failed: {found.message}")
    jobs = len(most) - len(binding)
    prices[binding] = np.maximum(-found.ineqlin.marginals[jobs:], 0.0) / scale
    share: FloatArray = found.x
    return share, prices, float(columns.value @ share)


def _exact(columns: _Columns, seconds: float) -> tuple[_Choices, float]:
    """The best choices, and a bound on their value."""
    scale = _scale(columns)
    matrix, most = _constraints(columns, _binding(columns))
    found = milp(
        -scale * columns.value,
        integrality=np.ones(len(columns.value), dtype=np.int64),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(matrix, -np.inf, most),
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    if found.x is None:
        raise SolverError(f"branch and bound found nothing: {found.message}")
    chosen = {int(columns.job[c]): c for c in np.nonzero(found.x > 0.5)[0].tolist()}
    if not fits(columns.uses[:, list(chosen.values())].sum(axis=1), columns.room).all():
        raise SolverError("branch and bound passed a limit")
    return chosen, -float(found.mip_dual_bound) / scale


def _scale(columns: _Columns) -> float:
    return _SCALE / max(float(columns.value.max()), sys.float_info.min * _SCALE)


def _binding(columns: _Columns) -> IntArray:
    """The indices of the limits that do not bear the largest of every job together."""
    first = np.flatnonzero(np.diff(columns.job, prepend=-1))
    largest = np.maximum.reduceat(columns.uses, first, axis=1)
    binding: IntArray = np.flatnonzero(~fits(largest.sum(axis=1), columns.room))
    return binding


def _constraints(columns: _Columns, binding: IntArray) -> tuple[Any, FloatArray]:
    """Rows of at most one column for each job, then of the limits that could bind; their maxima.

    The matrix is sparse, of which the stubs of `linprog` do not know.
    """
    _, job = np.unique(columns.job, return_inverse=True)
    count = len(job)
    rows = csr_array((np.ones(count), (job, np.arange(count))))
    matrix = vstack([rows, csr_array(columns.uses[binding])], format="csr")
    return matrix, np.concatenate([np.ones(rows.shape[0]), columns.room[binding]])


def _rounded(columns: _Columns, share: FloatArray) -> _Choices:
    """Keep what the mixture gives whole; then fill what is left by worth."""
    chosen: dict[int, int] = {}
    left = columns.room
    for column in np.nonzero(share > 1.0 - 1e-6)[0].tolist():
        if fits(columns.uses[:, column], left).all():
            chosen[int(columns.job[column])] = column
            left = left - columns.uses[:, column]
    return _filled(columns, chosen)


def _filled(columns: _Columns, chosen: _Choices) -> _Choices:
    """Give the room that is left one step at a time, the worthiest step per use first."""
    chosen = dict(chosen)
    scaled = (columns.uses / np.maximum(columns.room, 1e-12)[:, None]).sum(axis=0)
    least = _PRECISION * float(columns.value.max())
    while True:
        given = list(chosen.values())
        now = np.full(int(columns.job.max()) + 1, -1)
        now[list(chosen)] = given
        before = now[columns.job]
        has = before >= 0
        extra = columns.uses - np.where(has, columns.uses[:, before], 0.0)
        gain = columns.value - np.where(has, columns.value[before], 0.0)
        cost = scaled - np.where(has, scaled[before], 0.0)
        left = columns.room - columns.uses[:, given].sum(axis=1)
        open_steps = fits(extra, left).all(axis=0) & (gain > least)
        if not open_steps.any():
            return chosen
        density = np.where(open_steps, gain / np.maximum(cost, 1e-12), -np.inf)
        best = int(np.argmax(density))
        chosen[int(columns.job[best])] = best
