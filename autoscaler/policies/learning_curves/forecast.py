"""What a trial will report later, from what it and its siblings have reported so far.

A curve is believed to be one of a small ensemble of shapes (power laws, exponentials, sigmoids,
humps, and the courses of siblings that went all the way), stretched and moved, with a drift and an
error that wanders off as it is extrapolated. What is usual for level, gain, drift, shape and error
is learnt from the siblings. `docs/learning-curves.md` has the mathematics and the sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from autoscaler.domain.errors import CurveError
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.learning_curves.belief import learn, sample
from autoscaler.policies.learning_curves.draws import Wanted, draw, forerunners
from autoscaler.policies.learning_curves.filter import evidence_of
from autoscaler.policies.learning_curves.reports import Reports, binned, scaled
from autoscaler.policies.learning_curves.shapes import shapes_of

DRAWS = 256
# A value beyond it is taken for no number at all.
_MOST_VALUE = 1e100


@dataclass(frozen=True, slots=True)
class Curve:
    """The reports of one trial, in any order; none yet is a curve too.

    `progress` is statistical (epochs, examples, steps: what does not depend on the instances),
    at least 0; `values` is what was reported there. A value that is no finite number is left out;
    where the last one is none, the trial has diverged. Both are kept in the order of progress.

    Raises:
        CurveError: they are not two rows of equally many numbers, or a progress is negative or no
            finite number.
    """

    progress: FloatArray
    values: FloatArray

    def __init__(self, progress: ArrayLike, values: ArrayLike) -> None:
        where, what = _row("progress", progress), _row("values", values)
        if len(where) != len(what):
            raise CurveError(f"values: {len(what)} of them at {len(where)} places of progress")
        if not (np.isfinite(where) & (where >= 0)).all():
            raise CurveError("progress: each must be a finite number, 0 or more")
        order = np.argsort(where, kind="stable")
        object.__setattr__(self, "progress", where[order])
        object.__setattr__(self, "values", what[order])

    @property
    def diverged(self) -> bool:
        """Whether the last report was no finite number."""
        return len(self.values) > 0 and not _finite(self.values[-1:])[0]

    @property
    def finite(self) -> tuple[FloatArray, FloatArray]:
        """Progress and values where a finite number was reported."""
        kept = _finite(self.values)
        return self.progress[kept], self.values[kept]


@dataclass(frozen=True, slots=True)
class Study:
    """All trials of one study, ended and running: each is a sibling of the others.

    `best` is the best that the metric can be, where there is such a thing: 1 or 100 of an
    accuracy, 0 of most losses. Nothing is forecast beyond it, and where nobody has been far the
    band is the narrower for it. Reports that are better all the same are taken as they are.
    """

    curves: Sequence[Curve]
    maximize: bool
    best: float | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """Equally likely reports: `draws` (T trials, D draws, H horizons), in the metric's own units.

    A draw is one course: its values at the horizons of a trial belong together, those of two
    trials do not. All draws of a diverged trial are NaN, and it is better than nothing.
    """

    draws: FloatArray
    maximize: bool

    def median(self) -> FloatArray:
        """The middle of what may be reported, (T, H)."""
        middle: FloatArray = np.median(self.draws, axis=1)
        return middle

    def band(self, share: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """The ends, each (T, H), of the central band that holds so much of what may be reported.

        Raises:
            CurveError: `share` is not within (0, 1).
        """
        if not 0.0 < share < 1.0:
            raise CurveError(f"share: {share} of what may be reported; must be within (0, 1)")
        low, high = np.quantile(self.draws, [(1.0 - share) / 2.0, (1.0 + share) / 2.0], axis=1)
        return low, high

    def chance_better(self, threshold: ArrayLike) -> FloatArray:
        """How likely each is better than a value, (T, H); more where that is aimed at, else less.

        `threshold` is a number, or one for each trial and horizon.
        """
        chance: FloatArray = (self._gain(threshold) > 0.0).mean(axis=1)
        return chance

    def expected_improvement(self, incumbent: ArrayLike) -> FloatArray:
        """By how much each is expected to better a value, (T, H), where worse counts as 0."""
        improvement: FloatArray = np.maximum(self._gain(incumbent), 0.0).mean(axis=1)
        return improvement

    def _gain(self, over: ArrayLike) -> FloatArray:
        """Of each draw over a value; of a diverged trial's 0."""
        shape = self.draws.shape[0], self.draws.shape[2]
        try:
            value = np.broadcast_to(np.asarray(over, dtype=np.float64), shape)[:, None, :]
        except ValueError:
            message = f"threshold: must be a number, or {shape[0]} trials x {shape[1]} horizons"
            raise CurveError(message) from None
        gain = self.draws - value if self.maximize else value - self.draws
        known: FloatArray = np.where(np.isnan(self.draws), 0.0, gain)
        return known


def forecast(
    study: Study, trials: Sequence[int], horizons: ArrayLike, draws: int = DRAWS, seed: int = 0
) -> Forecast:
    """What trials of a study will report at later progress.

    The same arguments give the same draws, and a trial's do not depend on which others are asked
    for. Where a trial has been already, its draws are what it reported, interpolated.

    Args:
        study: every trial of it, those that are asked for included.
        trials: places in `study.curves`, T of them.
        horizons: progress, (T, H), or (H,) for all trials alike.
        draws: D, at least 1.
        seed: of the draws.

    Raises:
        CurveError: an argument is not as said.
    """
    index, where = _asked(study, trials, horizons, draws)
    sign = 1.0 if study.maximize else -1.0
    finite = [curve.finite for curve in study.curves]
    reports = binned(
        Reports(
            np.repeat(np.arange(len(finite)), [len(values) for _, values in finite]),
            np.concatenate([np.zeros(0), *(progress for progress, _ in finite)]),
            np.concatenate([np.zeros(0), *(sign * values for _, values in finite)]),
        ),
        len(finite),
        float(where.max(initial=0.0)),
    )
    best = None if study.best is None else sign * study.best
    units = scaled(reports, best)
    some = sample(reports)
    kept = np.union1d(some, index)
    shapes = shapes_of(reports, units).of(kept)
    evidence = evidence_of(reports.of(kept), units, shapes)
    belief = learn(evidence, shapes, np.searchsorted(kept, some))
    rows, ahead = np.searchsorted(kept, index), forerunners(reports, index)
    wanted = Wanted(index, rows, ahead, reports.axis.at(where), draws, seed)
    found = draw(evidence, shapes, belief, wanted)
    values = sign * np.minimum(units.outward(found), np.inf if best is None else best)
    _recall(values, [study.curves[trial] for trial in index.tolist()], where)
    return Forecast(values, study.maximize)


def _recall(values: FloatArray, curves: Sequence[Curve], horizons: FloatArray) -> None:
    """Write into draws what is known already: what was reported, and that a trial diverged."""
    for row, curve, where in zip(values, curves, horizons, strict=True):
        progress, reported = curve.finite
        if curve.diverged:
            row[:] = np.nan
        elif len(progress):
            past = where <= progress[-1]
            row[:, past] = np.interp(where[past], progress, reported)


def _asked(
    study: Study, trials: Sequence[int], horizons: ArrayLike, draws: int
) -> tuple[np.ndarray[tuple[int], np.dtype[np.intp]], FloatArray]:
    index = np.array(trials, dtype=np.intp).reshape(-1)
    if ((index < 0) | (index >= len(study.curves))).any():
        raise CurveError(f"trials: must be places among the {len(study.curves)} of the study")
    if draws < 1:
        raise CurveError(f"draws: {draws} of them; must be at least 1")
    where = _numbers("horizons", horizons)
    if where.ndim == 1:
        where = np.broadcast_to(where, (len(index), len(where)))
    if where.ndim != 2 or len(where) != len(index):
        raise CurveError(f"horizons: must be a row, or one for each of the {len(index)} trials")
    if not (np.isfinite(where) & (where >= 0)).all():
        raise CurveError("horizons: each must be a finite number, 0 or more")
    return index, where


def _row(name: str, numbers: ArrayLike) -> FloatArray:
    row = _numbers(name, numbers)
    if row.ndim != 1:
        raise CurveError(f"{name}: must be one row of numbers")
    return row


def _numbers(name: str, numbers: ArrayLike) -> FloatArray:
    try:
        return np.array(numbers, dtype=np.float64)
    except (TypeError, ValueError):
        raise CurveError(f"{name}: must be numbers") from None


def _finite(values: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    kept: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.abs(values) < _MOST_VALUE
    return kept
