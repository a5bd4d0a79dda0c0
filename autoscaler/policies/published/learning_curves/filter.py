"""Error of learning curves around their shape, and the evidence with this error filtered out.

Around its shape a curve has an error with a level W and a slope V on the axis of progress u::

    dW = V du + rough dB        dV = -V du / l + smooth dB'        report = shape + W + noise

Both are 0 at the first report. A Kalman filter makes a trial's reports independent of each other.
Since it is linear, it is applied to reports and shapes alike (Harvey 1989), to all trials at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.published.learning_curves.reports import BinnedReports, Units
from autoscaler.policies.published.learning_curves.shapes import Shapes

# Candidate errors, as multiples of the noise of a report: pairs of rough and smooth.
ROUGH = np.array([0.3, 1.0, 5.0, 0.3, 0.3, 0.3])
SMOOTH = np.array([0.0, 0.0, 0.0, 2.0, 15.0, 120.0])
# Relaxation length l of the slope on the axis: 1 is a factor e of progress.
_MEMORY = 1.0
# Number of columns common to all shapes: the reports, a constant, the drift.
COMMON = 3


@dataclass(frozen=True, slots=True)
class ErrorStep:
    """Transition of the error between two places: ``W += reach V, V *= lasting``, plus noise.

    The noise of W has variance `level`, that of V `slope`, and `both` is their covariance. All
    arrays have one shape.
    """

    lasting: FloatArray
    reach: FloatArray
    level: FloatArray
    both: FloatArray
    slope: FloatArray


@dataclass(frozen=True, slots=True)
class ReportStatistics:
    """Sufficient statistics of the reports of T trials for M shapes and P errors, at noise 1.

    Attributes:
        common: products of the common columns after filtering, (P, T, 3, 3).
        mixed: products of common columns and shapes, (P, 3, T, M).
        square: product of each shape with itself, (P, T, M).
        log_determinant: log determinant of the reports' covariance, (P, T).
        count: number of binned reports, (T,).
        last: place of the last report, (T,).
        level: error level at the last report if each column were the report, (P, T, 3 + M).
        slope: error slope there, (P, T, 3 + M).
        covariance: variance of W, covariance, variance of V there, (P, T, 3).
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


def step(rough: FloatArray, smooth: FloatArray, gap: FloatArray) -> ErrorStep:
    """Return the transition of the error over a gap on the axis; the arguments broadcast."""
    lasting = np.exp(-gap / _MEMORY)
    decayed = 1.0 - lasting
    variance = smooth**2
    return ErrorStep(
        lasting,
        _MEMORY * decayed,
        rough**2 * gap
        + variance
        * _MEMORY**2
        * np.maximum(gap - 2.0 * _MEMORY * decayed + _MEMORY / 2.0 * (1.0 - lasting**2), 0.0),
        variance * _MEMORY**2 / 2.0 * decayed**2,
        variance * _MEMORY / 2.0 * (1.0 - lasting**2),
    )


def evidence_of(reports: BinnedReports, units: Units, shapes: Shapes) -> ReportStatistics:
    """Return the filtered reports of all trials, bin by bin."""
    has_reports = reports.count > 0
    columns = _filter_columns(reports, units, shapes)
    state = _State(has_reports.shape[0], columns.shape[-1])
    last = np.where(has_reports[:, 0], reports.place[:, 0], 0.0)
    started = np.zeros(len(has_reports), dtype=np.bool_)
    for column in range(has_reports.shape[1]):
        has_report = has_reports[:, column]
        gap = np.where(has_report & started, reports.place[:, column] - last, 0.0)
        state.move(step(ROUGH[:, None], SMOOTH[:, None], gap))
        state.see(columns[:, column], has_report, np.maximum(reports.count[:, column], 1.0))
        last = np.where(has_report, reports.place[:, column], last)
        started |= has_report
    return ReportStatistics(
        state.common,
        state.mixed,
        state.square,
        state.log_determinant,
        has_reports.sum(axis=1).astype(np.float64),
        np.where(started, last, shapes.first),
        state.level,
        state.slope,
        np.stack([state.level_variance, state.both, state.slope_variance], axis=-1),
    )


def _filter_columns(reports: BinnedReports, units: Units, shapes: Shapes) -> FloatArray:
    """Return reports, constant, drift and shapes in each bin, (T, B, 3 + M)."""
    value = units.inward(reports.value)
    shared = np.stack([value, np.ones_like(value), shapes.drift(reports.place)], axis=-1)
    return np.concatenate([shared, shapes.at(reports.place)], axis=-1)


class _State:
    """Filter state of T trials and C columns between two bins, and the accumulated evidence."""

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

    def move(self, transition: ErrorStep) -> None:
        """Advance the state to the next bin."""
        lasting, reach = transition.lasting, transition.reach
        self.level += reach[:, None] * self.slope
        self.slope *= lasting[:, None]
        self.level_variance += (
            reach * (2.0 * self.both + reach * self.slope_variance) + transition.level
        )
        self.both = lasting * (self.both + reach * self.slope_variance) + transition.both
        self.slope_variance = lasting**2 * self.slope_variance + transition.slope

    def see(self, columns: FloatArray, here: NDArray[np.bool_], reports: FloatArray) -> None:
        """Update the state with the reports of a bin (T, C), each a mean of so many reports.

        Only trials where `here` (T,) is true have reports in the bin.
        """
        variance = self.level_variance + 1.0 / reports
        weight = here / variance
        innovation = columns - self.level
        weighted_innovation = innovation * weight[..., None]
        self._accumulate(innovation, weighted_innovation)
        self.log_determinant += np.where(here, np.log(variance), 0.0)
        self.level += self.level_variance[..., None] * weighted_innovation
        self.slope += self.both[..., None] * weighted_innovation
        remaining = 1.0 - self.level_variance * weight
        self.slope_variance = self.slope_variance - self.both**2 * weight
        self.both = self.both * remaining
        self.level_variance = self.level_variance * remaining

    def _accumulate(self, innovation: FloatArray, weighted_innovation: FloatArray) -> None:
        """Add the products of the weighted innovations to the evidence."""
        shared, shapes = weighted_innovation[..., :COMMON], innovation[..., COMMON:]
        self.common += shared[..., :, None] * innovation[..., None, :COMMON]
        for column in range(COMMON):
            self.mixed[:, column] += shared[..., column, None] * shapes
        self.square += weighted_innovation[..., COMMON:] * shapes
