"""How curves err: noise, a random walk, a wandering slope; and what is left without them.

Beside its shape a curve has an error with a level W and a slope V on the axis of progress u::

    dW = V du + rough dB        dV = -V du / l + smooth dB'        report = shape + W + noise

both 0 at its first report. A Kalman filter makes its reports independent of each other; being
linear, it is applied to reports and shapes alike (Harvey 1989), all trials at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.learning_curves.reports import BinnedReports, Units
from autoscaler.policies.learning_curves.shapes import Shapes

# Errors that are tried, as multiples of the noise of a report: (rough, smooth).
ROUGH = np.array([0.3, 1.0, 5.0, 0.3, 0.3, 0.3])
SMOOTH = np.array([0.0, 0.0, 0.0, 2.0, 15.0, 120.0])
# How long a slope lasts on the axis, l: until progress is e times as far.
_MEMORY = 1.0
# Columns that all shapes share: the reports, a constant, the drift.
COMMON = 3


@dataclass(frozen=True, slots=True)
class Step:
    """The error between two places, of any shape: ``W += reach V, V *= lasting``, and noise.

    The noise of W has variance `level`, that of V `slope`, and `both` is their covariance.
    """

    lasting: FloatArray
    reach: FloatArray
    level: FloatArray
    both: FloatArray
    slope: FloatArray


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the reports of T trials say of M shapes under P errors, noise counted as 1.

    Products of columns made independent: `common` (P, T, 3, 3) of the shared ones, `mixed`
    (P, 3, T, M) of shared ones and shapes, `square` (P, T, M) of each shape with itself.
    `log_determinant` (P, T) is that of the reports' covariance, `count` (T,) how many there are.
    At the last report, at `last` (T,): `level` and `slope` (P, T, 3 + M) of the error were each
    column the report, and `covariance` (P, T, 3) of both: of W, of W and V, of V.
    """

    common: FloatArray
    mixed: FloatArray
    square: FloatArray
    log_determinant: FloatArray
    count: FloatArray
    last: FloatArray
    level: FloatArray
    slope: FloatArray
    covariance: FloatArray


def step(rough: FloatArray, smooth: FloatArray, gap: FloatArray) -> Step:
    """The error over a gap on the axis; all three broadcast."""
    lasting = np.exp(-gap / _MEMORY)
    gone = 1.0 - lasting
    variance = smooth**2
    return Step(
        lasting,
        _MEMORY * gone,
        rough**2 * gap
        + variance
        * _MEMORY**2
        * np.maximum(gap - 2.0 * _MEMORY * gone + _MEMORY / 2.0 * (1.0 - lasting**2), 0.0),
        variance * _MEMORY**2 / 2.0 * gone**2,
        variance * _MEMORY / 2.0 * (1.0 - lasting**2),
    )


def evidence_of(reports: BinnedReports, units: Units, shapes: Shapes) -> Evidence:
    """Filter the reports of all trials, bin by bin."""
    held = reports.count > 0
    columns = _columns(reports, units, shapes)
    state = _State(held.shape[0], columns.shape[-1])
    last = np.where(held[:, 0], reports.place[:, 0], 0.0)
    started = np.zeros(len(held), dtype=np.bool_)
    for column in range(held.shape[1]):
        here = held[:, column]
        gap = np.where(here & started, reports.place[:, column] - last, 0.0)
        state.move(step(ROUGH[:, None], SMOOTH[:, None], gap))
        state.see(columns[:, column], here, np.maximum(reports.count[:, column], 1.0))
        last = np.where(here, reports.place[:, column], last)
        started |= here
    return Evidence(
        state.common,
        state.mixed,
        state.square,
        state.log_determinant,
        held.sum(axis=1).astype(np.float64),
        np.where(started, last, shapes.first),
        state.level,
        state.slope,
        np.stack([state.level_variance, state.both, state.slope_variance], axis=-1),
    )


def _columns(reports: BinnedReports, units: Units, shapes: Shapes) -> FloatArray:
    """Reports, constant, drift and shapes in each bin, (T, B, 3 + M)."""
    value = units.inward(reports.value)
    shared = np.stack([value, np.ones_like(value), shapes.drift(reports.place)], axis=-1)
    return np.concatenate([shared, shapes.at(reports.place)], axis=-1)


class _State:
    """The filter of T trials and C columns between two bins, and what it has added up."""

    def __init__(self, trials: int, columns: int) -> None:
        errors = len(ROUGH)
        self.level = np.zeros((errors, trials, columns))
        self.slope = np.zeros((errors, trials, columns))
        self.level_variance = np.zeros((errors, trials))
        self.both = np.zeros((errors, trials))
        self.slope_variance = np.zeros((errors, trials))
        self.common = np.zeros((errors, trials, COMMON, COMMON))
        self.mixed = np.zeros((errors, COMMON, trials, columns - COMMON))
        self.square = np.zeros((errors, trials, columns - COMMON))
        self.log_determinant = np.zeros((errors, trials))

    def move(self, by: Step) -> None:
        """To the next bin."""
        lasting, reach = by.lasting, by.reach
        self.level += reach[:, None] * self.slope
        self.slope *= lasting[:, None]
        self.level_variance += reach * (2.0 * self.both + reach * self.slope_variance) + by.level
        self.both = lasting * (self.both + reach * self.slope_variance) + by.both
        self.slope_variance = lasting**2 * self.slope_variance + by.slope

    def see(self, columns: FloatArray, here: NDArray[np.bool_], reports: FloatArray) -> None:
        """What was reported in a bin (T, C), by the trials that did, as a mean of so many."""
        variance = self.level_variance + 1.0 / reports
        weight = here / variance
        news = columns - self.level
        weighted = news * weight[..., None]
        self._add(news, weighted)
        self.log_determinant += np.where(here, np.log(variance), 0.0)
        self.level += self.level_variance[..., None] * weighted
        self.slope += self.both[..., None] * weighted
        kept = 1.0 - self.level_variance * weight
        self.slope_variance = self.slope_variance - self.both**2 * weight
        self.both = self.both * kept
        self.level_variance = self.level_variance * kept

    def _add(self, news: FloatArray, weighted: FloatArray) -> None:
        shared, shapes = weighted[..., :COMMON], news[..., COMMON:]
        self.common += shared[..., :, None] * news[..., None, :COMMON]
        for column in range(COMMON):
            self.mixed[:, column] += shared[..., column, None] * shapes
        self.square += weighted[..., COMMON:] * shapes
