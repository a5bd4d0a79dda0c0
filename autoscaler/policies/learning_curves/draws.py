"""Courses that curves may take from their last report on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.learning_curves.belief import Belief, Posterior, posterior, weights
from autoscaler.policies.learning_curves.filter import COMMON, ROUGH, SMOOTH, Evidence, step
from autoscaler.policies.learning_curves.reports import BinnedReports
from autoscaler.policies.learning_curves.shapes import Shapes

# How unsure a forecast is was learnt from so many curves beside the study's own; and as trials of
# one study differ in it, it does not get surer than if they were so many.
_DEGREES_BEFOREHAND = 2.0
_MOST_DEGREES = 8.0
# chi^2 / degrees is no less than its third power: no draw is further off than this makes it.
_LEAST_ROOT = 0.25
# Normal numbers of a draw: gain, level, drift, error, its slope, and the scale of all of them; and
# so many for each horizon.
_NORMALS = 6
_NORMALS_OF_HORIZON = 3


@dataclass(frozen=True, slots=True)
class Wanted:
    """Draws of T trials at H places each.

    `trials` are places in the study (a trial keeps its draws, whoever else is asked for), `rows`
    places in the evidence, `forerunners` how many siblings went ahead, all (T,); `places` (T, H)
    are on the axis of progress.
    """

    trials: NDArray[np.intp]
    rows: NDArray[np.intp]
    forerunners: FloatArray
    places: FloatArray
    draws: int
    seed: int


@dataclass(frozen=True, slots=True)
class _Chance:
    """The random numbers of T trials and D draws.

    `uniform` in [0, 1) and even over the draws, and `inflation` of all that is unsure, (T, D);
    `normal` (5, T, D); `normal_of_horizon` (H, 3, T, D).
    """

    uniform: FloatArray
    inflation: FloatArray
    normal: FloatArray
    normal_of_horizon: FloatArray


def forerunners(reports: BinnedReports, trials: NDArray[np.intp]) -> FloatArray:
    """How many siblings have gone the way that each trial (T,) still has to go, parts as parts."""
    last = reports.last
    here = last[trials, None]
    way = np.maximum(reports.axis.end - here, 1e-9)
    gone: FloatArray = np.clip((last - here) / way, 0.0, 1.0).sum(axis=1)
    return gone


def draw(evidence: Evidence, shapes: Shapes, belief: Belief, wanted: Wanted) -> FloatArray:
    """Reports without unit that may come, (T, D, H).

    About their median they are spread as a t distribution is about a normal one: the scale of what
    is unsure was learnt from no more than the siblings that have been further.
    """
    trials, places = wanted.rows, wanted.places
    if not len(trials):
        return np.zeros((0, wanted.draws, places.shape[1]))
    degrees = _DEGREES_BEFOREHAND + wanted.forerunners
    chance = _chance(wanted, np.minimum(degrees, _MOST_DEGREES))
    found = posterior(evidence, shapes, belief, trials)
    choice, shape = _picked(found, chance.uniform)
    course = _Course(evidence, found, belief, _Picked(trials, choice, shape), chance.normal)
    drift, all_shapes = shapes.drift(places), shapes.at(places)
    rows = np.arange(len(trials))
    values = np.empty((*choice.shape, places.shape[1]))
    for which in np.argsort(places, axis=1, kind="stable").T:
        normal = chance.normal_of_horizon[which, :, rows].transpose(1, 0, 2)
        course.go(places[rows, which], normal)
        of_shape = all_shapes[rows, which][rows[:, None], shape]
        value = course.value(drift[rows, which], of_shape, normal[2])
        values[rows, :, which] = value
    middle = np.median(values, axis=1, keepdims=True)
    spread: FloatArray = middle + (values - middle) * chance.inflation[..., None]
    return spread


@dataclass(frozen=True, slots=True)
class _Picked:
    """The trials (T,), and of each draw (T, D) which choice and which shape."""

    trials: NDArray[np.intp]
    choice: NDArray[np.intp]
    shape: NDArray[np.intp]


class _Course:
    """Draws (T, D) on their way along the axis."""

    def __init__(
        self,
        evidence: Evidence,
        found: Posterior,
        belief: Belief,
        picked: _Picked,
        normal: FloatArray,
    ) -> None:
        row = np.arange(len(picked.trials))[:, None]
        choice, shape, trial = picked.choice, picked.shape, picked.trials[:, None]
        of_both, of_all = (choice, row), (choice, row, shape)
        self.gain = found.gain[of_all] + np.sqrt(found.gain_variance[of_all]) * normal[0]
        off = _correlated(found.covariance[of_both], normal[1], normal[2])
        self.level = found.level[of_both] - found.level_per_gain[of_all] * self.gain + off[0]
        self.drift = found.drift[of_both] - found.drift_per_gain[of_all] * self.gain + off[1]
        error = belief.choices.error[choice]
        self.noise = belief.choices.noise[choice]
        self.rough, self.smooth = ROUGH[error], SMOOTH[error]
        self.place = evidence.last[picked.trials]
        known = _correlated(evidence.covariance[error, trial], normal[3], normal[4])
        ends = []
        for columns, unsure in zip((evidence.level, evidence.slope), known, strict=True):
            end = columns[error, trial, 0] - self.level * columns[error, trial, 1]
            end -= self.drift * columns[error, trial, 2]
            end -= self.gain * columns[error, trial, COMMON + shape]
            ends.append(end + self.noise * unsure)
        self.error, self.slope = ends

    def go(self, place: FloatArray, normal: FloatArray) -> None:
        """To places (T,), not before where they are."""
        gap = np.maximum(place - self.place, 0.0)
        by = step(self.rough, self.smooth, gap[:, None])
        covariance = np.stack([by.level, by.both, by.slope], axis=-1)
        off_level, off_slope = _correlated(covariance, normal[0], normal[1])
        self.error = self.error + by.reach * self.slope + self.noise * off_level
        self.slope = by.lasting * self.slope + self.noise * off_slope
        self.place = self.place + gap

    def value(self, drift: FloatArray, shape: FloatArray, normal: FloatArray) -> FloatArray:
        """What is reported there, (T, D): of drift (T,) and the shapes (T, D) at that place."""
        curve = self.level + self.drift * drift[:, None] + self.gain * shape
        value: FloatArray = curve + self.error + self.noise * normal
        return value


def _chance(wanted: Wanted, degrees: FloatArray) -> _Chance:
    """A generator for each trial: what others are asked for does not matter to it."""
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
    return _Chance(
        uniform, inflation, normal[:, :-1].transpose(1, 0, 2), of_horizon.transpose(1, 2, 0, 3)
    )


def _inflation(normal: FloatArray, degrees: FloatArray) -> FloatArray:
    """What makes t numbers of normal ones: ``sqrt(degrees / chi^2)`` (Wilson & Hilferty 1931)."""
    small = 2.0 / (9.0 * degrees)
    share = np.maximum(1.0 - small + normal * np.sqrt(small), _LEAST_ROOT)
    return share**-1.5


def _picked(found: Posterior, uniform: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """A choice and a shape for each draw, (T, D) each, as often as they are likely."""
    share = weights(found.log_weight).transpose(1, 0, 2)
    up_to = np.cumsum(share.reshape(len(share), -1), axis=1)
    up_to /= up_to[:, -1:]
    picked = np.stack(
        [
            np.searchsorted(row, wanted, side="right")
            for row, wanted in zip(up_to, uniform, strict=True)
        ]
    )
    picked = np.minimum(picked, up_to.shape[1] - 1)
    return np.divmod(picked, share.shape[2])


def _correlated(
    covariance: FloatArray, first: FloatArray, second: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Two numbers of a covariance (..., 3) (of one, both, the other) from two independent ones."""
    deviation = np.sqrt(np.maximum(covariance[..., 0], 0.0))
    shared = covariance[..., 1] / np.where(deviation > 0.0, deviation, 1.0)
    rest = np.sqrt(np.maximum(covariance[..., 2] - shared**2, 0.0))
    return deviation * first, shared * first + rest * second
