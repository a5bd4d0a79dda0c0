"""The reports of a study as the model of learning curves sees them: few, on axes without units."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autoscaler.goodput.throughput import FloatArray

# Places on the axis of progress; reports nearer to each other than two of them are averaged.
BINS = 16
# Values count in full up to about so many scales from the centre, and from there by magnitude.
_LINEAR_SCALES = 10.0
# No value counts as further away than this, nor is one foreseen that is beyond all that were
# reported by more than that.
_MOST_SCALES = 200.0
_BEYOND = 10.0
# So many standard deviations lie between the 5th and the 95th percentile of a normal distribution,
# and between its quartiles.
_DEVIATIONS_OF_NINE_TENTHS = 3.29
_DEVIATIONS_OF_HALF = 1.35
# Nine tenths that spread more than so many times as far as half of them have exploded.
_MOST_SPREAD = 10.0
# Where nobody has been near the end, what is to come may be as large as the values themselves, or
# this share of the way to the best that there can be.
_UNSEEN_POWER = 2.0
_SHARE_OF_BEST = 1.0 / 3.0
# The longest course counts as at least so many times the first report.
_LEAST_LENGTH = 1.5


@dataclass(frozen=True, slots=True)
class Axis:
    """Progress without unit, ``u = log(progress / unit + 1/2)``; first reports are at 1 unit.

    `start` is where nothing has been done, `first` where the first reports are, `end` the last
    report or horizon of all.
    """

    unit: float
    length: float

    def at(self, progress: FloatArray) -> FloatArray:
        """Where some progress is on the axis, of any shape."""
        place: FloatArray = np.log(progress / self.unit + 0.5)
        return place

    @property
    def start(self) -> float:
        """Where nothing has been done."""
        return float(np.log(0.5))

    @property
    def first(self) -> float:
        """Where the first reports are."""
        return float(np.log(1.5))

    @property
    def end(self) -> float:
        """Where the last report or horizon is."""
        return float(np.log(self.length / self.unit + 0.5))


@dataclass(frozen=True, slots=True)
class Reports:
    """Reports in a row, each (N,): whose, at what progress, and what; more is better."""

    trial: NDArray[np.intp]
    progress: FloatArray
    value: FloatArray


@dataclass(frozen=True, slots=True)
class BinnedReports:
    """Means of the reports of T trials in B bins along the axis, each (T, B).

    `count` of them, 0 in an empty bin, where `place` (on the axis) and `value` are 0.
    """

    axis: Axis
    count: FloatArray
    place: FloatArray
    value: FloatArray

    @property
    def last(self) -> FloatArray:
        """How far each trial got on the axis, (T,); where the first reports are if nowhere."""
        held = self.count > 0
        furthest = np.where(held, self.place, -np.inf).max(axis=1, initial=-np.inf)
        last: FloatArray = np.where(held.any(axis=1), furthest, self.axis.first)
        return last

    def of(self, trials: NDArray[np.intp]) -> BinnedReports:
        """Those of some trials."""
        return BinnedReports(self.axis, self.count[trials], self.place[trials], self.value[trials])


@dataclass(frozen=True, slots=True)
class Units:
    """Values without unit: ``z = c asinh((value - centre) / (c scale))`` with c = 10.

    Next to linear where trials are alike, logarithmic where one of them explodes. What is foreseen
    is no less than `lowest` and no more than `highest`.
    """

    centre: float
    scale: float
    lowest: float = -_MOST_SCALES
    highest: float = _MOST_SCALES

    def inward(self, values: FloatArray) -> FloatArray:
        """Without unit, of any shape."""
        away = np.arcsinh((values - self.centre) / (_LINEAR_SCALES * self.scale))
        most = _MOST_SCALES / _LINEAR_SCALES
        without: FloatArray = _LINEAR_SCALES * np.clip(away, -most, most)
        return without

    def outward(self, values: FloatArray) -> FloatArray:
        """In the metric's own unit, of any shape."""
        away = np.clip(values, self.lowest, self.highest) / _LINEAR_SCALES
        within: FloatArray = self.centre + _LINEAR_SCALES * self.scale * np.sinh(away)
        return within


def binned(reports: Reports, trials: int, furthest: float) -> BinnedReports:
    """The reports of so many trials, averaged in bins, on an axis up to the `furthest` horizon."""
    axis = _axis(reports, trials, furthest)
    place = axis.at(reports.progress)
    edges = np.linspace(axis.first, axis.end, BINS + 1)[1:-1]
    cell = reports.trial * BINS + np.searchsorted(edges, place, side="left")

    def total(weights: FloatArray | None) -> FloatArray:
        sums = np.bincount(cell, weights, minlength=trials * BINS).astype(np.float64)
        return sums.reshape(trials, BINS)

    count = total(None)
    held = np.maximum(count, 1.0)
    return BinnedReports(axis, count, total(place) / held, total(reports.value) / held)


def scaled(reports: BinnedReports, best: float | None) -> Units:
    """The median of all values, and how far they spread; of such as went not far, how large.

    `best` is the most that a value can be, where that is known.
    """
    held = reports.count > 0
    values = reports.value[held]
    if not len(values):
        return Units(0.0, 1.0, -_BEYOND, _BEYOND)
    centre = float(np.median(values))
    axis = reports.axis
    unseen = (axis.end - reports.place[held].max()) / (axis.end - axis.start)
    room = abs(centre) if best is None else _SHARE_OF_BEST * max(best - centre, 0.0)
    scale = float(np.hypot(_spread(values), room * np.clip(unseen, 0.0, 1.0) ** _UNSEEN_POWER))
    units = Units(centre, scale or float(np.ptp(values)) or abs(centre) or 1.0)
    known = units.inward(values)
    lowest, highest = float(known.min()) - _BEYOND, float(known.max()) + _BEYOND
    return replace(units, lowest=lowest, highest=highest)


def _spread(values: FloatArray) -> float:
    """The standard deviation, but for those that explode."""
    lowest, low, high, highest = np.quantile(values, [0.05, 0.25, 0.75, 0.95])
    wide = float(highest - lowest) / _DEVIATIONS_OF_NINE_TENTHS
    narrow = float(high - low) / _DEVIATIONS_OF_HALF
    return min(wide, _MOST_SPREAD * narrow) if narrow > 0.0 else wide


def _axis(reports: Reports, trials: int, furthest: float) -> Axis:
    started = reports.progress > 0
    first = np.full(trials, np.inf)
    np.minimum.at(first, reports.trial[started], reports.progress[started])
    known = first[np.isfinite(first)]
    length = max(furthest, float(reports.progress.max(initial=0.0)))
    unit = float(np.median(known)) if len(known) else (length or 1.0) / 50.0
    return Axis(unit, max(length, _LEAST_LENGTH * unit))
