"""The shapes that a learning curve may have: families of formulas, and the courses of siblings.

A shape goes from 0 at a study's first reports to 1 at its end, so that its factor is the gain,
whatever the family. Power law, exponential (also stretched) and Hill are of Domhan et al.
(IJCAI'15); courses of siblings, moved and stretched, of Chandrashekaran & Lane (ECML'17).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.learning_curves.reports import Axis, BinnedReports, Units

POWERS = (0.25, 0.5, 1.0, 1.5, 2.5, 4.0)
_POINTS = 96
_EXPONENTIALS = 7
_STRETCHED = 5
_HILLS = 5
_HILL_POWER = 3
# Curves that rise and then fall again: how fast and how far.
_HUMPS = ((1.0, 0.3), (1.0, 0.8), (2.5, 0.3), (2.5, 0.8))
MOST_SIBLINGS = 8
# A sibling is a shape if it got so near to the end, on the axis, in so many bins.
_NEAR_THE_END = 0.15
_LEAST_BINS = 4
# How much is given to all siblings together where there are any.
_SHARE_OF_SIBLINGS = 0.5


@dataclass(frozen=True, slots=True)
class Shapes:
    """M shapes as tables at G places that lie evenly on the axis.

    `table` is (G, M); `weight` (M,) what each is given beforehand; `own` (T, M) says whose course
    it is: nobody is predicted by himself. `first` is the place of the first reports.
    """

    places: FloatArray
    table: FloatArray
    weight: FloatArray
    own: NDArray[np.bool_]
    first: float

    def at(self, place: FloatArray) -> FloatArray:
        """Every shape at places (...): (..., M)."""
        step = self.places[1] - self.places[0]
        position = np.clip((place - self.places[0]) / step, 0.0, len(self.places) - 1.0)
        below = np.minimum(position.astype(np.intp), len(self.places) - 2)
        share = (position - below)[..., None]
        value: FloatArray = self.table[below] * (1.0 - share) + self.table[below + 1] * share
        return value

    def of(self, trials: NDArray[np.intp]) -> Shapes:
        """The same for some of the trials."""
        return replace(self, own=self.own[trials])

    def drift(self, place: FloatArray) -> FloatArray:
        """What goes on evenly with the logarithm of progress, of any shape: 0 first, 1 at last."""
        away: FloatArray = (place - self.first) / (self.places[-1] - self.first)
        return away


def shapes_of(reports: BinnedReports, units: Units) -> Shapes:
    """All shapes for the trials of a study."""
    places = np.linspace(reports.axis.start, reports.axis.end, _POINTS)
    formulas = _formulas(places, reports.axis)
    courses, trials = _courses(places, reports, units)
    table, useful = _normalised(np.concatenate([formulas, courses]), places, reports.axis.first)
    siblings = int(useful[len(formulas) :].sum())
    share = _SHARE_OF_SIBLINGS if siblings else 0.0
    weight = np.full(int(useful.sum()), (1.0 - share) / int(useful[: len(formulas)].sum()))
    own = np.zeros((len(reports.count), len(weight)), dtype=np.bool_)
    if siblings:
        weight[-siblings:] = share / siblings
        own[trials[useful[len(formulas) :]], np.arange(len(weight) - siblings, len(weight))] = True
    return Shapes(places, table, weight, own, reports.axis.first)


def _formulas(places: FloatArray, axis: Axis) -> FloatArray:
    """One a row, each of which rises at first."""
    shifted = np.exp(places)
    progress = np.maximum(shifted - 0.5, 0.0)
    length = axis.length / axis.unit
    rows = [-(shifted**-power) for power in POWERS]
    rows += [places, progress]
    for time in np.geomspace(1.0, 2.0 * length, _EXPONENTIALS):
        rows.append(-np.exp(-progress / time))
    for time in np.geomspace(1.0, 2.0 * length, _STRETCHED):
        rows.append(-np.exp(-np.sqrt(progress / time)))
    for time in np.geomspace(2.0, max(length, 2.0), _HILLS):
        rows.append(-1.0 / (1.0 + (progress / time) ** _HILL_POWER))
    for power, fall in _HUMPS:
        rows.append(-(1.5**power) * shifted**-power - fall * progress / length)
    return np.array(rows)


def _courses(
    places: FloatArray, reports: BinnedReports, units: Units
) -> tuple[FloatArray, NDArray[np.intp]]:
    """The courses of siblings that went all the way, one a row, and whose they are."""
    held = reports.count > 0
    long = reports.last >= reports.axis.end - _NEAR_THE_END
    long &= held.sum(axis=1) >= _LEAST_BINS
    trials = np.flatnonzero(long)
    if len(trials) > MOST_SIBLINGS:
        trials = trials[np.linspace(0, len(trials) - 1, MOST_SIBLINGS).astype(np.intp)]
    values = units.inward(reports.value)
    rows = np.zeros((len(trials), len(places)))
    for row, trial in zip(rows, trials, strict=True):
        known = held[trial]
        row[:] = np.interp(places, reports.place[trial, known], values[trial, known])
    return rows, trials


def _normalised(
    rows: FloatArray, places: FloatArray, first: float
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """As columns that rise from 0 to 1, and which of the rows were no flat lines."""
    begin = int(np.searchsorted(places, first - 1e-9))
    height = np.ptp(rows[:, begin:], axis=1)
    useful = height > 1e-9 * np.abs(rows).max(axis=1, initial=1e-300)
    rows, height = rows[useful], height[useful]
    sign = np.where(rows[:, begin] > rows[:, -1], -1.0, 1.0)
    table = 1.0 + (rows - rows[:, -1:]) * (sign / height)[:, None]
    return np.ascontiguousarray(table.T), useful
