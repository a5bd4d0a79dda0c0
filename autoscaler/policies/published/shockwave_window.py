"""Rounds of each job in the next window: greatest Nash welfare, with a weight on the makespan.

Source: Zheng et al., Shockwave (NSDI'23), section 6: the volatile Fisher market of a window of
rounds as one program. The log utilities are concave, so inequalities replace the paper's ordered
sets of binaries. A job's rounds are counted, without their positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from autoscaler.domain.errors import SolverError
from autoscaler.goodput.throughput import FloatArray

_GAP = 1e-3
# Limit on branch-and-bound nodes, which gives the same plan on every machine.
_NODES = 1000


@dataclass(frozen=True, slots=True)
class Bidder:
    """One job of the window.

    Attributes:
        devices: devices that the job asked for.
        utilities: utility of 0, 1, ... all rounds of the window, concave.
        left_rounds: rounds in which the job would end if it ran in all of them.
    """

    devices: int
    utilities: Sequence[float]
    left_rounds: float


@dataclass(frozen=True, slots=True)
class Window:
    """Window of the market.

    Attributes:
        rounds: number of rounds.
        devices: devices of each round.
        makespan_weight: weight of the makespan, from 0 to 1.
        most_seconds: time limit of the solver.
    """

    rounds: int
    devices: int
    makespan_weight: float
    most_seconds: float


def rounds_of(bidders: Sequence[Bidder], window: Window) -> list[int]:
    """Return the number of rounds of each job in the window.

    The objective is ``(1 - k) * mean utility - k * makespan``. The makespan is the longest time
    left of any job after the window, in windows, so k is independent of the pool.

    Raises:
        SolverError: the solver finds no solution in time.
    """
    if not bidders:
        return []
    program = _Program(bidders, window)
    result = milp(
        program.costs,
        integrality=program.integrality,
        bounds=Bounds(program.least, program.most),
        constraints=program.constraints(),
        options={
            "time_limit": window.most_seconds,
            "node_limit": _NODES,
            "mip_rel_gap": _GAP,
        },
    )
    if result.x is None:
        raise SolverError(f"the window's program has no solution: {result.message}")
    return [round(rounds) for rounds in result.x[: len(bidders)]]


def log_utility(progress: float, points: Sequence[float], least: float) -> float:
    """Return log(progress), linear between `points` from 0 to 1; log(`least`) at 0."""
    values = [math.log(max(point, least)) for point in points]
    return float(np.interp(progress, points, values))


def concave(values: Sequence[float]) -> list[float]:
    """Return the least concave series that is nowhere below the values."""
    hull: list[int] = []
    for index in range(len(values)):
        while len(hull) > 1 and _is_below(values, hull[-2], hull[-1], index):
            hull.pop()
        hull.append(index)
    series: list[float] = np.interp(
        range(len(values)), hull, [values[corner] for corner in hull]
    ).tolist()
    return series


def _is_below(values: Sequence[float], first: int, middle: int, last: int) -> bool:
    """Return whether the middle value is on or below the line from the first to the last."""
    rise = (values[last] - values[first]) / (last - first)
    return values[middle] <= values[first] + rise * (middle - first)


class _Program:
    """Integer program with the columns: rounds of each job, utility of each job, makespan."""

    def __init__(self, bidders: Sequence[Bidder], window: Window) -> None:
        count, k = len(bidders), window.makespan_weight
        self._bidders = bidders
        self._window = window
        self.costs = np.concatenate([np.zeros(count), np.full(count, -(1 - k) / count), [k]])
        self.integrality = np.concatenate([np.ones(count), np.zeros(count + 1)])
        useful = [
            min(window.rounds, math.ceil(bidder.left_rounds))
            if bidder.devices <= window.devices
            else 0
            for bidder in bidders
        ]
        self.least = np.concatenate([np.zeros(count), np.full(count, -np.inf), [0.0]])
        self.most = np.concatenate([useful, np.full(count + 1, np.inf)])

    def constraints(self) -> LinearConstraint:
        """Return the rows for devices, for utilities below their chords, and for the makespan."""
        rows: list[tuple[dict[int, float], float]] = []
        count, window = len(self._bidders), self._window
        devices = {index: float(bidder.devices) for index, bidder in enumerate(self._bidders)}
        rows.append((devices, float(window.devices * window.rounds)))
        for index, bidder in enumerate(self._bidders):
            for slope, start in _chords(bidder.utilities):
                rows.append(({count + index: 1.0, index: -slope}, start))
            ends = {index: -1.0 / window.rounds, 2 * count: -1.0}
            rows.append((ends, -bidder.left_rounds / window.rounds))
        entries = [
            (row, column, value)
            for row, (coefficients, _) in enumerate(rows)
            for column, value in coefficients.items()
        ]
        row_indices, columns, values = np.array(entries).T
        positions = (row_indices.astype(np.int64), columns.astype(np.int64))
        matrix = coo_array((values, positions), shape=(len(rows), 2 * count + 1))
        most: FloatArray = np.array([limit for _, limit in rows])
        return LinearConstraint(matrix.tocsr(), -np.inf, most)


def _chords(utilities: Sequence[float]) -> list[tuple[float, float]]:
    """Return slope and value at 0 rounds of each linear piece of the utilities."""
    chords: list[tuple[float, float]] = []
    for index, (before, after) in enumerate(pairwise(utilities)):
        slope = after - before
        if not chords or abs(slope - chords[-1][0]) > 1e-12:
            chords.append((slope, before - slope * index))
    return chords or [(0.0, utilities[0])]
