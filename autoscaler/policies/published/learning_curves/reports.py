"""Reports of a study as inputs of the curve model: binned, on axes without units."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autoscaler.goodput.throughput import FloatArray

# Number of bins on the axis of progress; reports of a trial in one bin are averaged.
BINS = 16
# Scales from the centre up to which values are about linear; beyond they are logarithmic.
_LINEAR_SCALES = 10.0
# Largest distance of a value from the centre, and largest distance of a forecast beyond all
# reported values, in scales.
_MOST_SCALES = 200.0
_BEYOND = 10.0
# Standard deviations between the 5th and the 95th percentile of a normal distribution, and between
# its quartiles.
_DEVIATIONS_OF_NINE_TENTHS = 3.29
_DEVIATIONS_OF_HALF = 1.35
# Ratio of the two estimates of the deviation above which outliers count as exploded.
_MOST_SPREAD = 10.0
# Where no trial is near the end, future changes may be as large as the values themselves, or this
# fraction of the distance to the best possible value. The power applies to the unseen part.
_UNSEEN_POWER = 2.0
_SHARE_OF_BEST = 1.0 / 3.0
# Least length of the axis, over the progress of the first report.
_LEAST_LENGTH = 1.5


@dataclass(frozen=True, slots=True)
class Axis:
    """Progress without unit, ``u = log(progress / unit + 1/2)``; first reports are at 1 unit.

    Attributes:
        unit: median progress of first reports.
        length: progress of the last report or horizon of all trials.
    """

    unit: float
    length: float

    def at(self, progress: FloatArray) -> FloatArray:
        """Return the place of each progress on the axis, of any shape."""
        place: FloatArray = np.log(progress / self.unit + 0.5)
        return place

    @property
    def start(self) -> float:
        """Place of no progress."""
        return float(np.log(0.5))

    @property
    def first(self) -> float:
        """Place of the first reports."""
        return float(np.log(1.5))

    @property
    def end(self) -> float:
        """Place of the last report or horizon."""
        return float(np.log(self.length / self.unit + 0.5))


@dataclass(frozen=True, slots=True)
class ReportRows:
    """Reports in a row, each (N,): trial index, progress, and value, where more is better."""

    trial: NDArray[np.intp]
    progress: FloatArray
    value: FloatArray


@dataclass(frozen=True, slots=True)
class BinnedReports:
    """Means of the reports of T trials in B bins along the axis, each (T, B).

    Attributes:
        axis: axis of progress.
        count: number of reports; 0 in an empty bin.
        place: mean place on the axis; 0 in an empty bin.
        value: mean value; 0 in an empty bin.
    """

    axis: Axis
    count: FloatArray
    place: FloatArray
    value: FloatArray

    @property
    def last(self) -> FloatArray:
        """Place of each trial's last report, (T,); that of first reports without any."""
        has_reports = self.count > 0
        furthest = np.where(has_reports, self.place, -np.inf).max(axis=1, initial=-np.inf)
        last: FloatArray = np.where(has_reports.any(axis=1), furthest, self.axis.first)
        return last

    def of(self, trials: NDArray[np.intp]) -> BinnedReports:
        """Return the binned reports of some trials."""
        return BinnedReports(self.axis, self.count[trials], self.place[trials], self.value[trials])


@dataclass(frozen=True, slots=True)
class Units:
    """Scaling of values: ``z = c asinh((value - centre) / (c scale))`` with c = 10.

    Nearly linear where trials are alike, logarithmic where a trial explodes. Forecasts without
    unit are between `lowest` and `highest`.
    """

    centre: float
    scale: float
    lowest: float = -_MOST_SCALES
    highest: float = _MOST_SCALES

    def inward(self, values: FloatArray) -> FloatArray:
        """Return the values without unit, of any shape."""
        scaled_values = np.arcsinh((values - self.centre) / (_LINEAR_SCALES * self.scale))
        most = _MOST_SCALES / _LINEAR_SCALES
        values_without_unit: FloatArray = _LINEAR_SCALES * np.clip(scaled_values, -most, most)
        return values_without_unit

    def outward(self, values: FloatArray) -> FloatArray:
        """Return the values in the metric's unit, of any shape."""
        scaled_values = np.clip(values, self.lowest, self.highest) / _LINEAR_SCALES
        metric_values: FloatArray = self.centre + _LINEAR_SCALES * self.scale * np.sinh(
            scaled_values
        )
        return metric_values


def binned(reports: ReportRows, trials: int, furthest: float) -> BinnedReports:
    """Return the reports of the trials in bins, on an axis up to the `furthest` horizon."""
    axis = _axis(reports, trials, furthest)
    place = axis.at(reports.progress)
    edges = np.linspace(axis.first, axis.end, BINS + 1)[1:-1]
    cell = reports.trial * BINS + np.searchsorted(edges, place, side="left")

    def total(weights: FloatArray | None) -> FloatArray:
        """Return the sums over the bins, (T, B)."""
        sums = np.bincount(cell, weights, minlength=trials * BINS).astype(np.float64)
        return sums.reshape(trials, BINS)

    count = total(None)
    divisor = np.maximum(count, 1.0)
    return BinnedReports(axis, count, total(place) / divisor, total(reports.value) / divisor)


def scaled(reports: BinnedReports, best: float | None) -> Units:
    """Return the scaling by median and spread; where no trial is far, by the size of values.

    `best` is the largest possible value, None if unknown.
    """
    has_reports = reports.count > 0
    values = reports.value[has_reports]
    if not len(values):
        return Units(0.0, 1.0, -_BEYOND, _BEYOND)
    centre = float(np.median(values))
    axis = reports.axis
    unseen = (axis.end - reports.place[has_reports].max()) / (axis.end - axis.start)
    unseen_change = abs(centre) if best is None else _SHARE_OF_BEST * max(best - centre, 0.0)
    scale = float(
        np.hypot(_spread(values), unseen_change * np.clip(unseen, 0.0, 1.0) ** _UNSEEN_POWER)
    )
    units = Units(centre, scale or float(np.ptp(values)) or abs(centre) or 1.0)
    values_without_unit = units.inward(values)
    lowest, highest = (
        float(values_without_unit.min()) - _BEYOND,
        float(values_without_unit.max()) + _BEYOND,
    )
    return replace(units, lowest=lowest, highest=highest)


def _spread(values: FloatArray) -> float:
    """Return the standard deviation, robust against exploding values."""
    lowest, low, high, highest = np.quantile(values, [0.05, 0.25, 0.75, 0.95])
    wide = float(highest - lowest) / _DEVIATIONS_OF_NINE_TENTHS
    narrow = float(high - low) / _DEVIATIONS_OF_HALF
    return min(wide, _MOST_SPREAD * narrow) if narrow > 0.0 else wide


def _axis(reports: ReportRows, trials: int, furthest: float) -> Axis:
    """Return the axis of the reports, up to the furthest horizon."""
    started = reports.progress > 0
    first = np.full(trials, np.inf)
    np.minimum.at(first, reports.trial[started], reports.progress[started])
    first_progress = first[np.isfinite(first)]
    length = max(furthest, float(reports.progress.max(initial=0.0)))
    unit = float(np.median(first_progress)) if len(first_progress) else (length or 1.0) / 50.0
    return Axis(unit, max(length, _LEAST_LENGTH * unit))
