"""Forecast of a trial's later reports, from its own reports and those of its siblings.

A curve is a member of a small ensemble of shapes: power laws, exponentials, sigmoids, humps, and
the curves of siblings that went to the end. It is scaled and shifted, with a drift and an error
that grows with extrapolation. The prior of level, gain, drift, shape and error is learnt from the
siblings. `docs/learning-curves.md` has the mathematics and the sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from autoscaler.domain.errors import CurveError
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.published.learning_curves.belief import learn, sample
from autoscaler.policies.published.learning_curves.draws import DrawRequest, draw, forerunners
from autoscaler.policies.published.learning_curves.filter import evidence_of
from autoscaler.policies.published.learning_curves.reports import ReportRows, binned, scaled
from autoscaler.policies.published.learning_curves.shapes import shapes_of

DRAWS = 256
# Largest absolute value of a metric; larger values count as not finite.
_MOST_VALUE = 1e100


@dataclass(frozen=True, slots=True)
class Curve:
    """Reports of one trial; may be empty.

    Values that are not finite are ignored; if the last one is not finite, the trial has diverged.
    The arrays are stored in the order of progress.

    Attributes:
        progress: statistical progress (epochs, examples or steps, independent of the instances),
            at least 0.
        values: metric reported at each progress.

    Raises:
        CurveError: the arguments are not two rows of equally many numbers, or a progress is
            negative or not finite.
    """

    progress: FloatArray
    values: FloatArray

    def __init__(self, progress: ArrayLike, values: ArrayLike) -> None:
        progress_row, value_row = _row("progress", progress), _row("values", values)
        if len(progress_row) != len(value_row):
            raise CurveError(
                f"values: {len(value_row)} given for {len(progress_row)} points of progress"
            )
        if not (np.isfinite(progress_row) & (progress_row >= 0)).all():
            raise CurveError("progress: each must be a finite number, 0 or more")
        order = np.argsort(progress_row, kind="stable")
        object.__setattr__(self, "progress", progress_row[order])
        object.__setattr__(self, "values", value_row[order])

    @property
    def diverged(self) -> bool:
        """Whether the last report is not finite."""
        return len(self.values) > 0 and not _is_finite(self.values[-1:])[0]

    @property
    def finite(self) -> tuple[FloatArray, FloatArray]:
        """Progress and values of the finite reports."""
        kept = _is_finite(self.values)
        return self.progress[kept], self.values[kept]


@dataclass(frozen=True, slots=True)
class Study:
    """All trials of one study, running and ended; all inform each other.

    Attributes:
        curves: reports of each trial.
        maximize: whether a higher metric is better.
        best: best possible value of the metric, such as 1 or 100 of an accuracy or 0 of most
            losses; None if there is none. It bounds forecasts and narrows them where no trial is
            far. Reported values beyond it are kept.
    """

    curves: Sequence[Curve]
    maximize: bool
    best: float | None = None


def forecast(
    study: Study, trials: Sequence[int], horizons: ArrayLike, draws: int = DRAWS, seed: int = 0
) -> FloatArray:
    """Return equally likely later reports of T trials of a study at H horizons, (T, draws, H).

    The values of a draw at the horizons of one trial are a joint sample; draws of different trials
    are independent. All draws of a diverged trial are NaN.

    Equal arguments give equal draws, and a trial's draws do not depend on the other trials asked
    for. At progress already reported, the draws are the reports, interpolated.

    Args:
        study: all trials of the study, including those asked for.
        trials: indices in `study.curves`, T of them.
        horizons: progress, (T, H), or (H,) for all trials alike.
        draws: number of draws D, at least 1.
        seed: seed of the draws.

    Raises:
        CurveError: an argument does not meet its description.
    """
    index, horizon_array = _checked_arguments(study, trials, horizons, draws)
    sign = 1.0 if study.maximize else -1.0
    finite = [curve.finite for curve in study.curves]
    reports = binned(
        ReportRows(
            np.repeat(np.arange(len(finite)), [len(values) for _, values in finite]),
            np.concatenate([np.zeros(0), *(progress for progress, _ in finite)]),
            np.concatenate([np.zeros(0), *(sign * values for _, values in finite)]),
        ),
        len(finite),
        float(horizon_array.max(initial=0.0)),
    )
    best = None if study.best is None else sign * study.best
    units = scaled(reports, best)
    sampled = sample(reports)
    kept = np.union1d(sampled, index)
    shapes = shapes_of(reports, units).of(kept)
    evidence = evidence_of(reports.of(kept), units, shapes)
    belief = learn(evidence, shapes, np.searchsorted(kept, sampled))
    rows, siblings_ahead = np.searchsorted(kept, index), forerunners(reports, index)
    request = DrawRequest(index, rows, siblings_ahead, reports.axis.at(horizon_array), draws, seed)
    draws_without_unit = draw(evidence, shapes, belief, request)
    values = sign * np.minimum(units.outward(draws_without_unit), np.inf if best is None else best)
    _overwrite_known(values, [study.curves[trial] for trial in index.tolist()], horizon_array)
    return values


def _overwrite_known(values: FloatArray, curves: Sequence[Curve], horizons: FloatArray) -> None:
    """Overwrite draws at progress already reported, and those of diverged trials with NaN."""
    for row, curve, trial_horizons in zip(values, curves, horizons, strict=True):
        progress, reported = curve.finite
        if curve.diverged:
            row[:] = np.nan
        elif len(progress):
            past = trial_horizons <= progress[-1]
            row[:, past] = np.interp(trial_horizons[past], progress, reported)


def _checked_arguments(
    study: Study, trials: Sequence[int], horizons: ArrayLike, draws: int
) -> tuple[np.ndarray[tuple[int], np.dtype[np.intp]], FloatArray]:
    """Return trials (T,) and horizons (T, H) as arrays.

    Raises:
        CurveError: an argument does not meet its description.
    """
    index = np.array(trials, dtype=np.intp).reshape(-1)
    if ((index < 0) | (index >= len(study.curves))).any():
        raise CurveError(f"trials: must be indices of the study's {len(study.curves)} trials")
    if draws < 1:
        raise CurveError(f"draws={draws}: must be at least 1")
    horizon_array = _numbers("horizons", horizons)
    if horizon_array.ndim == 1:
        horizon_array = np.broadcast_to(horizon_array, (len(index), len(horizon_array)))
    if horizon_array.ndim != 2 or len(horizon_array) != len(index):
        raise CurveError(f"horizons: must be a row, or one for each of the {len(index)} trials")
    if not (np.isfinite(horizon_array) & (horizon_array >= 0)).all():
        raise CurveError("horizons: each must be a finite number, 0 or more")
    return index, horizon_array


def _row(name: str, numbers: ArrayLike) -> FloatArray:
    """Return the numbers as one row.

    Raises:
        CurveError: the argument is not one row of numbers.
    """
    row = _numbers(name, numbers)
    if row.ndim != 1:
        raise CurveError(f"{name}: must be one row of numbers")
    return row


def _numbers(name: str, numbers: ArrayLike) -> FloatArray:
    """Return the numbers as an array.

    Raises:
        CurveError: the argument is not numeric.
    """
    try:
        return np.array(numbers, dtype=np.float64)
    except (TypeError, ValueError):
        raise CurveError(f"{name}: must be numbers") from None


def _is_finite(values: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return whether each value is finite and below `_MOST_VALUE`."""
    is_finite: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.abs(values) < _MOST_VALUE
    return is_finite
