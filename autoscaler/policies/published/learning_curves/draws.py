"""Random continuations of learning curves from their last report on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.published.learning_curves.belief import (
    CurvePosterior,
    StudyPrior,
    posterior,
    weights,
)
from autoscaler.policies.published.learning_curves.filter import (
    COMMON,
    ROUGH,
    SMOOTH,
    ReportStatistics,
    step,
)
from autoscaler.policies.published.learning_curves.reports import BinnedReports
from autoscaler.policies.published.learning_curves.shapes import Shapes

# Degrees of freedom of the forecast's spread: those of the general prior, and the most of any
# study, because trials of one study differ in their spread.
_DEGREES_BEFOREHAND = 2.0
_MOST_DEGREES = 8.0
# Least cube root of chi^2 / degrees, which bounds the inflation of a draw.
_LEAST_ROOT = 0.25
# Normal numbers of a draw: gain, level, drift, error, its slope, and the scale of all of them; and
# the normal numbers of a draw at each horizon.
_NORMALS = 6
_NORMALS_OF_HORIZON = 3


@dataclass(frozen=True, slots=True)
class DrawRequest:
    """Request for draws of T trials at H places each.

    Attributes:
        trials: indices in the study, (T,); they seed a trial's draws, independent of the others.
        rows: indices in the evidence, (T,).
        forerunners: number of siblings ahead, (T,).
        places: places on the axis of progress, (T, H).
        draws: number of draws D.
        seed: seed of the draws.
    """

    trials: NDArray[np.intp]
    rows: NDArray[np.intp]
    forerunners: FloatArray
    places: FloatArray
    draws: int
    seed: int


@dataclass(frozen=True, slots=True)
class _RandomNumbers:
    """Random numbers of T trials and D draws.

    Attributes:
        uniform: numbers in [0, 1), stratified over the draws, (T, D).
        inflation: factor on the spread, (T, D).
        normal: normal numbers of each draw, (5, T, D).
        normal_of_horizon: normal numbers of each horizon, (H, 3, T, D).
    """

    uniform: FloatArray
    inflation: FloatArray
    normal: FloatArray
    normal_of_horizon: FloatArray


def forerunners(reports: BinnedReports, trials: NDArray[np.intp]) -> FloatArray:
    """Return the number of siblings ahead of each trial, (T,), as a sum of fractions.

    A fraction is the part of the trial's remaining way, on the axis, that a sibling has covered.
    """
    last = reports.last
    place = last[trials, None]
    remaining = np.maximum(reports.axis.end - place, 1e-9)
    covered: FloatArray = np.clip((last - place) / remaining, 0.0, 1.0).sum(axis=1)
    return covered


def draw(
    evidence: ReportStatistics, shapes: Shapes, belief: StudyPrior, wanted: DrawRequest
) -> FloatArray:
    """Return draws of reports without unit, (T, D, H).

    The draws are spread around their median as a t distribution relative to a normal one, because
    the spread was estimated from few siblings.
    """
    trials, places = wanted.rows, wanted.places
    if not len(trials):
        return np.zeros((0, wanted.draws, places.shape[1]))
    degrees = _DEGREES_BEFOREHAND + wanted.forerunners
    random_numbers = _random_numbers(wanted, np.minimum(degrees, _MOST_DEGREES))
    trial_posterior = posterior(evidence, shapes, belief, trials)
    choice, shape = _sample_assignments(trial_posterior, random_numbers.uniform)
    continuation = _Continuation(
        evidence,
        trial_posterior,
        belief,
        _Assignments(trials, choice, shape),
        random_numbers.normal,
    )
    drift, all_shapes = shapes.drift(places), shapes.at(places)
    rows = np.arange(len(trials))
    values = np.empty((*choice.shape, places.shape[1]))
    for horizon in np.argsort(places, axis=1, kind="stable").T:
        normal = random_numbers.normal_of_horizon[horizon, :, rows].transpose(1, 0, 2)
        continuation.go(places[rows, horizon], normal)
        shape_values = all_shapes[rows, horizon][rows[:, None], shape]
        value = continuation.value(drift[rows, horizon], shape_values, normal[2])
        values[rows, :, horizon] = value
    median = np.median(values, axis=1, keepdims=True)
    spread: FloatArray = median + (values - median) * random_numbers.inflation[..., None]
    return spread


@dataclass(frozen=True, slots=True)
class _Assignments:
    """Trials, (T,), and the choice and shape of each draw, (T, D)."""

    trials: NDArray[np.intp]
    choice: NDArray[np.intp]
    shape: NDArray[np.intp]


class _Continuation:
    """State of the draws (T, D) as they advance along the axis."""

    def __init__(
        self,
        evidence: ReportStatistics,
        trial_posterior: CurvePosterior,
        belief: StudyPrior,
        assignments: _Assignments,
        normal: FloatArray,
    ) -> None:
        trial_row = np.arange(len(assignments.trials))[:, None]
        choice, shape, trial = assignments.choice, assignments.shape, assignments.trials[:, None]
        by_choice, by_shape = (choice, trial_row), (choice, trial_row, shape)
        self.gain = (
            trial_posterior.gain[by_shape]
            + np.sqrt(trial_posterior.gain_variance[by_shape]) * normal[0]
        )
        offset = _correlated(trial_posterior.covariance[by_choice], normal[1], normal[2])
        self.level = (
            trial_posterior.level[by_choice]
            - trial_posterior.level_per_gain[by_shape] * self.gain
            + offset[0]
        )
        self.drift = (
            trial_posterior.drift[by_choice]
            - trial_posterior.drift_per_gain[by_shape] * self.gain
            + offset[1]
        )
        error = belief.choices.error[choice]
        self.noise = belief.choices.noise[choice]
        self.rough, self.smooth = ROUGH[error], SMOOTH[error]
        self.place = evidence.last[assignments.trials]
        error_offsets = _correlated(evidence.covariance[error, trial], normal[3], normal[4])
        ends = []
        for columns, unsure in zip((evidence.level, evidence.slope), error_offsets, strict=True):
            end = columns[error, trial, 0] - self.level * columns[error, trial, 1]
            end -= self.drift * columns[error, trial, 2]
            end -= self.gain * columns[error, trial, COMMON + shape]
            ends.append(end + self.noise * unsure)
        self.error, self.slope = ends

    def go(self, place: FloatArray, normal: FloatArray) -> None:
        """Advance to places (T,); places before the present ones do not move."""
        gap = np.maximum(place - self.place, 0.0)
        transition = step(self.rough, self.smooth, gap[:, None])
        covariance = np.stack([transition.level, transition.both, transition.slope], axis=-1)
        level_offset, slope_offset = _correlated(covariance, normal[0], normal[1])
        self.error = self.error + transition.reach * self.slope + self.noise * level_offset
        self.slope = transition.lasting * self.slope + self.noise * slope_offset
        self.place = self.place + gap

    def value(self, drift: FloatArray, shape: FloatArray, normal: FloatArray) -> FloatArray:
        """Return the reports (T, D) at the present place, from drift (T,) and shapes (T, D)."""
        curve = self.level + self.drift * drift[:, None] + self.gain * shape
        value: FloatArray = curve + self.error + self.noise * normal
        return value


def _random_numbers(wanted: DrawRequest, degrees: FloatArray) -> _RandomNumbers:
    """Return random numbers from one generator per trial, independent of the other trials."""
    trials, draws = len(wanted.trials), wanted.draws
    horizons = wanted.places.shape[1]
    uniform = np.empty((trials, draws))
    normal = np.empty((trials, _NORMALS, draws))
    of_horizon = np.empty((trials, horizons, _NORMALS_OF_HORIZON, draws))
    for row, trial in enumerate(wanted.trials):
        generator = np.random.default_rng([wanted.seed, int(trial)])
        uniform[row] = (generator.permutation(draws) + generator.random()) / draws
        normal[row] = generator.standard_normal((_NORMALS, draws))
        of_horizon[row] = generator.standard_normal((horizons, _NORMALS_OF_HORIZON, draws))
    inflation = _inflation(normal[:, -1], degrees[:, None])
    return _RandomNumbers(
        uniform, inflation, normal[:, :-1].transpose(1, 0, 2), of_horizon.transpose(1, 2, 0, 3)
    )


def _inflation(normal: FloatArray, degrees: FloatArray) -> FloatArray:
    """Return ``sqrt(degrees / chi^2)`` by the cube-root approximation of chi^2.

    It turns normal numbers into t-distributed ones (Wilson & Hilferty 1931).
    """
    small = 2.0 / (9.0 * degrees)
    cube_root = np.maximum(1.0 - small + normal * np.sqrt(small), _LEAST_ROOT)
    return cube_root**-1.5


def _sample_assignments(
    trial_posterior: CurvePosterior, uniform: FloatArray
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return a choice and a shape for each draw, (T, D) each, by their probabilities."""
    share = weights(trial_posterior.log_weight).transpose(1, 0, 2)
    cumulative = np.cumsum(share.reshape(len(share), -1), axis=1)
    cumulative /= cumulative[:, -1:]
    indices = np.stack(
        [
            np.searchsorted(row, uniforms, side="right")
            for row, uniforms in zip(cumulative, uniform, strict=True)
        ]
    )
    indices = np.minimum(indices, cumulative.shape[1] - 1)
    return np.divmod(indices, share.shape[2])


def _correlated(
    covariance: FloatArray, first: FloatArray, second: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return two numbers with a covariance (..., 3) from two independent standard normal ones.

    The covariance has the first variance, the covariance and the second variance.
    """
    deviation = np.sqrt(np.maximum(covariance[..., 0], 0.0))
    shared = covariance[..., 1] / np.where(deviation > 0.0, deviation, 1.0)
    rest = np.sqrt(np.maximum(covariance[..., 2] - shared**2, 0.0))
    return deviation * first, shared * first + rest * second
