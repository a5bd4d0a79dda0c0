"""Candidate shapes of a learning curve: families of formulas, and the curves of siblings.

Each shape is 0 at a study's first reports and 1 at its end, so that its factor is the gain in
every family. Power law, exponential (also stretched) and Hill are from Domhan et al. (IJCAI'15);
curves of siblings, shifted and scaled, from Chandrashekaran & Lane (ECML'17).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.published.learning_curves.reports import Axis, BinnedReports, Units

POWERS = (0.25, 0.5, 1.0, 1.5, 2.5, 4.0)
_POINTS = 96
_EXPONENTIALS = 7
_STRETCHED = 5
_HILLS = 5
_HILL_POWER = 3
# Curves that rise and then fall again: (power of the rise, size of the fall).
_HUMPS = ((1.0, 0.3), (1.0, 0.8), (2.5, 0.3), (2.5, 0.8))
MOST_SIBLINGS = 8
# A sibling is a shape if it is this near to the end, on the axis, with reports in so many bins.
_NEAR_THE_END = 0.15
_LEAST_BINS = 4
# Prior probability of all siblings together where there are any.
_SHARE_OF_SIBLINGS = 0.5


@dataclass(frozen=True, slots=True)
class Shapes:
    """M shapes as tables at G places, evenly spaced on the axis.

    Attributes:
        places: places of the table, (G,).
        table: value of each shape, (G, M).
        weight: prior probability of each shape, (M,).
        own: whether a shape is the trial's own curve, (T, M); it is not used for that trial.
        first: place of the first reports.
    """

    places: FloatArray
    table: FloatArray
    weight: FloatArray
    own: NDArray[np.bool_]
    first: float

    def at(self, place: FloatArray) -> FloatArray:
        """Return every shape at places (...), interpolated: (..., M)."""
        step = self.places[1] - self.places[0]
        position = np.clip((place - self.places[0]) / step, 0.0, len(self.places) - 1.0)
        below = np.minimum(position.astype(np.intp), len(self.places) - 2)
        fraction = (position - below)[..., None]
        value: FloatArray = self.table[below] * (1.0 - fraction) + self.table[below + 1] * fraction
        return value

    def of(self, trials: NDArray[np.intp]) -> Shapes:
        """Return the shapes with `own` for some of the trials."""
        return replace(self, own=self.own[trials])

    def drift(self, place: FloatArray) -> FloatArray:
        """Return the drift, linear in log progress: 0 at the first reports, 1 at the end."""
        drift: FloatArray = (place - self.first) / (self.places[-1] - self.first)
        return drift


def shapes_of(reports: BinnedReports, units: Units) -> Shapes:
    """Return all shapes for the trials of a study."""
    places = np.linspace(reports.axis.start, reports.axis.end, _POINTS)
    formulas = _formulas(places, reports.axis)
    sibling_rows, trials = _sibling_curves(places, reports, units)
    table, useful = _normalised(
        np.concatenate([formulas, sibling_rows]), places, reports.axis.first
    )
    siblings = int(useful[len(formulas) :].sum())
    share = _SHARE_OF_SIBLINGS if siblings else 0.0
    weight = np.full(int(useful.sum()), (1.0 - share) / int(useful[: len(formulas)].sum()))
    is_own = np.zeros((len(reports.count), len(weight)), dtype=np.bool_)
    if siblings:
        weight[-siblings:] = share / siblings
        is_own[trials[useful[len(formulas) :]], np.arange(len(weight) - siblings, len(weight))] = (
            True
        )
    return Shapes(places, table, weight, is_own, reports.axis.first)


def _formulas(places: FloatArray, axis: Axis) -> FloatArray:
    """Return the formulas at the places, one per row; each rises at first."""
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


def _sibling_curves(
    places: FloatArray, reports: BinnedReports, units: Units
) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return the curves of siblings that went to the end, one per row, and their trial indices."""
    has_reports = reports.count > 0
    is_complete = reports.last >= reports.axis.end - _NEAR_THE_END
    is_complete &= has_reports.sum(axis=1) >= _LEAST_BINS
    trials = np.flatnonzero(is_complete)
    if len(trials) > MOST_SIBLINGS:
        trials = trials[np.linspace(0, len(trials) - 1, MOST_SIBLINGS).astype(np.intp)]
    values = units.inward(reports.value)
    rows = np.zeros((len(trials), len(places)))
    for row, trial in zip(rows, trials, strict=True):
        reported = has_reports[trial]
        row[:] = np.interp(places, reports.place[trial, reported], values[trial, reported])
    return rows, trials


def _normalised(
    rows: FloatArray, places: FloatArray, first: float
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the rows as columns from 0 to 1, and which of the rows are not flat."""
    begin = int(np.searchsorted(places, first - 1e-9))
    height = np.ptp(rows[:, begin:], axis=1)
    useful = height > 1e-9 * np.abs(rows).max(axis=1, initial=1e-300)
    rows, height = rows[useful], height[useful]
    sign = np.where(rows[:, begin] > rows[:, -1], -1.0, 1.0)
    table = 1.0 + (rows - rows[:, -1:]) * (sign / height)[:, None]
    return np.ascontiguousarray(table.T), useful
