"""How many of the next rounds each job runs in: the most Nash welfare, with an eye on the end.

Source: Zheng et al., Shockwave (NSDI'23), section 6: the volatile Fisher market of a window of
rounds as one program. The log utilities are concave, so that inequalities do for them where the
paper has ordered sets of binaries, and rounds of a job are counted, not told apart.
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
# Of branch and bound, which end the search at the same plan on any machine.
_NODES = 1000


@dataclass(frozen=True, slots=True)
class Bidder:
    """One job of the window.

    Attributes:
        devices: that it asked for.
        utilities: of running in 0, 1, ... all of the rounds, concave.
        left_rounds: in how many rounds it would end, alone.
    """

    devices: int
    utilities: Sequence[float]
    left_rounds: float


@dataclass(frozen=True, slots=True)
class Window:
    """The market: so many rounds, devices, and how much the end of all matters, from 0 to 1."""

    rounds: int
    devices: int
    makespan_weight: float
    most_seconds: float


def rounds_of(bidders: Sequence[Bidder], window: Window) -> list[int]:
    """In how many rounds each job runs.

    The greatest ``(1 - k) * mean utility - k * makespan``, where makespan is the longest that any
    job has left after the window, alone, in windows: so k means the same on any pool.

    Raises:
        SolverError: none were found in time.
    """
    if not bidders:
        return []
    program = _Program(bidders, window)
    found = milp(
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
    if found.x is None:
        raise SolverError(f"the window's program has no solution: {found.message}")
    return [round(rounds) for rounds in found.x[: len(bidders)]]


def log_utility(progress: float, points: Sequence[float], least: float) -> float:
    """Its logarithm, straight between `points`, which go from 0 to 1; that of 0 is of `least`."""
    values = [math.log(max(point, least)) for point in points]
    return float(np.interp(progress, points, values))


def concave(values: Sequence[float]) -> list[float]:
    """The least concave series that is nowhere below these."""
    hull: list[int] = []
    for place in range(len(values)):
        while len(hull) > 1 and _is_below(values, hull[-2], hull[-1], place):
            hull.pop()
        hull.append(place)
    found: list[float] = np.interp(
        range(len(values)), hull, [values[each] for each in hull]
    ).tolist()
    return found


def _is_below(values: Sequence[float], first: int, middle: int, last: int) -> bool:
    rise = (values[last] - values[first]) / (last - first)
    return values[middle] <= values[first] + rise * (middle - first)


class _Program:
    """Columns: the rounds of each job, the utility of each, the makespan."""

    def __init__(self, bidders: Sequence[Bidder], window: Window) -> None:
        count, k = len(bidders), window.makespan_weight
        self._bidders = bidders
        self._window = window
        self.costs = np.concatenate([np.zeros(count), np.full(count, -(1 - k) / count), [k]])
        self.integrality = np.concatenate([np.ones(count), np.zeros(count + 1)])
        useful = [
            min(window.rounds, math.ceil(each.left_rounds))
            if each.devices <= window.devices
            else 0
            for each in bidders
        ]
        self.least = np.concatenate([np.zeros(count), np.full(count, -np.inf), [0.0]])
        self.most = np.concatenate([useful, np.full(count + 1, np.inf)])

    def constraints(self) -> LinearConstraint:
        """Devices there are, utilities below their chords, nobody's end after the makespan."""
        rows: list[tuple[dict[int, float], float]] = []
        count, window = len(self._bidders), self._window
        devices = {turn: float(each.devices) for turn, each in enumerate(self._bidders)}
        rows.append((devices, float(window.devices * window.rounds)))
        for turn, each in enumerate(self._bidders):
            for slope, start in _chords(each.utilities):
                rows.append(({count + turn: 1.0, turn: -slope}, start))
            ends = {turn: -1.0 / window.rounds, 2 * count: -1.0}
            rows.append((ends, -each.left_rounds / window.rounds))
        entries = [
            (row, column, value)
            for row, (of, _) in enumerate(rows)
            for column, value in of.items()
        ]
        places, columns, values = np.array(entries).T
        at = (places.astype(np.int64), columns.astype(np.int64))
        matrix = coo_array((values, at), shape=(len(rows), 2 * count + 1))
        most: FloatArray = np.array([limit for _, limit in rows])
        return LinearConstraint(matrix.tocsr(), -np.inf, most)


def _chords(utilities: Sequence[float]) -> list[tuple[float, float]]:
    """Slope and value at 0 rounds of each straight piece."""
    found: list[tuple[float, float]] = []
    for place, (before, after) in enumerate(pairwise(utilities)):
        slope = after - before
        if not found or abs(slope - found[-1][0]) > 1e-12:
            found.append((slope, before - slope * place))
    return found or [(0.0, utilities[0])]
