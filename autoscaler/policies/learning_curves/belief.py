"""What is usual in a study: learnt from all its trials at once, few of whose reports or many.

A trial's value is ``a + d drift(u) + g shape(u) + error(u) + noise``. Level a, drift d and gain g
are normal across trials; which shape, error and noise a trial has is a choice among few. Mean,
covariance and the frequencies of the choices are those that make the reports likely, held near
what is believed of any study (empirical Bayes by expectation and maximisation; Dempster et al.
1977, mixtures of linear regressions). Trials that were pruned count with what they reported, so
that the survivors' luck is not taken for the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.learning_curves.filter import ROUGH, SMOOTH, Evidence
from autoscaler.policies.learning_curves.reports import BinnedReports
from autoscaler.policies.learning_curves.shapes import Shapes

# Noise of a report that is tried, in scales of the study's values.
NOISE = 0.004 * 2.6 ** np.arange(5)
# Level, drift and gain before any trial, in scales: curves are to improve, and go on improving.
MEAN = np.array([0.0, 0.2, 2.0])
DEVIATION = np.array([1.0, 0.3, 1.5])
# Errors larger than so many scales over e times the progress are hardly believed beforehand.
_LARGE_ERROR = 0.7
# How many trials what is believed beforehand is worth, of each part.
_TRIALS_OF_MEAN = 0.5
_TRIALS_OF_COVARIANCE = 3.0
_TRIALS_OF_SHAPES = 4.0
_TRIALS_OF_ERRORS = 1.0
_MOST_TRIALS = 48
_ROUNDS = 4
# Trials unlike the others count less, as if level, drift and gain were of a t distribution.
_DEGREES_OF_TRIALS = 4.0
# Choices of error and noise that are rarer than this are not worth their time.
_LEAST_FREQUENCY = 1e-3


@dataclass(frozen=True, slots=True)
class Choices:
    """K pairs of an error (its place in `ROUGH`) and a noise, each (K,)."""

    error: NDArray[np.intp]
    noise: FloatArray

    def among(self, kept: NDArray[np.bool_]) -> Choices:
        """Some of them."""
        return Choices(self.error[kept], self.noise[kept])


@dataclass(frozen=True, slots=True)
class Belief:
    """What is usual: `mean` (3,) and `covariance` (3, 3) of level, drift, gain; and frequencies.

    `of_shapes` (M,) and `of_choices` (K,).
    """

    mean: FloatArray
    covariance: FloatArray
    of_shapes: FloatArray
    choices: Choices
    of_choices: FloatArray


@dataclass(frozen=True, slots=True)
class Posterior:
    """Of T trials under K choices and M shapes: how likely, and level, drift and gain given that.

    `log_weight` (K, T, M), with the frequencies. The gain is normal with `gain` and
    `gain_variance` (K, T, M); given it, level and drift have the means ``level - level_per_gain *
    gain`` and so on, and `covariance` (K, T, 3): of the level, of both, of the drift.
    """

    log_weight: FloatArray
    gain: FloatArray
    gain_variance: FloatArray
    level: FloatArray
    level_per_gain: FloatArray
    drift: FloatArray
    drift_per_gain: FloatArray
    covariance: FloatArray


def sample(reports: BinnedReports) -> NDArray[np.intp]:
    """The trials to learn from: all that have reported, or of many some that lie evenly."""
    started = np.flatnonzero((reports.count > 0).any(axis=1))
    even = np.linspace(0, len(started) - 1, min(len(started), _MOST_TRIALS))
    return started[even.astype(np.intp)]


def learn(evidence: Evidence, shapes: Shapes, some: NDArray[np.intp]) -> Belief:
    """What is usual among some of these trials."""
    belief = prior = _beforehand(shapes)
    if len(some):
        for _ in range(_ROUNDS):
            found = posterior(evidence, shapes, belief, some)
            belief = _updated(prior, belief, found)
    kept = belief.of_choices >= _LEAST_FREQUENCY * belief.of_choices.max()
    worth = 1.0 + 1.0 / (len(some) + _TRIALS_OF_MEAN)
    return Belief(
        belief.mean,
        belief.covariance * worth,
        belief.of_shapes,
        belief.choices.among(kept),
        belief.of_choices[kept],
    )


def posterior(
    evidence: Evidence, shapes: Shapes, belief: Belief, trials: NDArray[np.intp]
) -> Posterior:
    """What the reports of some trials say, given what is usual."""
    error, noise = belief.choices.error[:, None], belief.choices.noise[:, None] ** 2
    common = evidence.common[error, trials] / noise[..., None, None]
    inverse = np.linalg.inv(belief.covariance)
    pull = inverse @ belief.mean
    level, drift = pull[0] + common[..., 0, 1], pull[1] + common[..., 0, 2]
    precision = inverse[:2, :2] + common[..., 1:, 1:]
    determinant = precision[..., 0, 0] * precision[..., 1, 1] - precision[..., 0, 1] ** 2
    covariance = (
        np.stack([precision[..., 1, 1], -precision[..., 0, 1], precision[..., 0, 0]], axis=-1)
        / determinant[..., None]
    )
    level_mean = covariance[..., 0] * level + covariance[..., 1] * drift
    drift_mean = covariance[..., 1] * level + covariance[..., 2] * drift
    fit = evidence.log_determinant[error, trials] + evidence.count[trials] * np.log(noise)
    fit += common[..., 0, 0] + np.log(determinant) - level * level_mean - drift * drift_mean
    fit += belief.mean @ pull + np.linalg.slogdet(belief.covariance)[1]
    noise = noise[..., None]
    with_level = inverse[0, 2] + evidence.mixed[error, 1, trials] / noise
    with_drift = inverse[1, 2] + evidence.mixed[error, 2, trials] / noise
    level_per_gain = covariance[..., [0]] * with_level + covariance[..., [1]] * with_drift
    drift_per_gain = covariance[..., [1]] * with_level + covariance[..., [2]] * with_drift
    left = inverse[2, 2] + evidence.square[error, trials] / noise
    left -= with_level * level_per_gain + with_drift * drift_per_gain
    pulled = pull[2] + evidence.mixed[error, 0, trials] / noise
    pulled -= level_per_gain * level[..., None] + drift_per_gain * drift[..., None]
    gain = pulled / left
    log_weight = 0.5 * (pulled * gain - np.log(left) - fit[..., None])
    log_weight += np.log(belief.of_choices)[:, None, None] + np.log(belief.of_shapes)
    log_weight[:, shapes.own[trials]] = -np.inf
    return Posterior(
        log_weight, gain, 1.0 / left, level_mean, level_per_gain, drift_mean, drift_per_gain,
        covariance,
    )  # fmt: skip


def weights(log_weight: FloatArray) -> FloatArray:
    """Of choices and shapes, (K, T, M), as shares that add up to 1 for each trial."""
    share = np.exp(log_weight - log_weight.max(axis=(0, 2), keepdims=True))
    shares: FloatArray = share / share.sum(axis=(0, 2), keepdims=True)
    return shares


def _beforehand(shapes: Shapes) -> Belief:
    """What is believed of any study."""
    choices = Choices(np.repeat(np.arange(len(ROUGH)), len(NOISE)), np.tile(NOISE, len(ROUGH)))
    size = choices.noise * np.maximum(ROUGH, SMOOTH)[choices.error]
    frequency = 1.0 / (1.0 + (size / _LARGE_ERROR) ** 4)
    frequency /= frequency.sum()
    return Belief(MEAN, np.diag(DEVIATION**2), shapes.weight, choices, frequency)


def _updated(prior: Belief, belief: Belief, found: Posterior) -> Belief:
    """One round: the belief that makes likely what was found under the last one."""
    share = weights(found.log_weight)
    level = found.level[..., None] - found.level_per_gain * found.gain
    drift = found.drift[..., None] - found.drift_per_gain * found.gain
    means = (level, drift, found.gain)
    share *= _typical(belief, np.array([(share * of).sum(axis=(0, 2)) for of in means]))
    total = float(share.sum())
    sums = np.array([np.einsum("ktm,ktm->", share, of) for of in means])
    mean = (_TRIALS_OF_MEAN * prior.mean + sums) / (total + _TRIALS_OF_MEAN)
    moved = mean - prior.mean
    scatter = _squares(share, means) + _unsure(share, found)
    scatter -= np.outer(mean, sums) + np.outer(sums, mean) - total * np.outer(mean, mean)
    scatter += _TRIALS_OF_COVARIANCE * prior.covariance + _TRIALS_OF_MEAN * np.outer(moved, moved)
    of_shapes = _TRIALS_OF_SHAPES * prior.of_shapes + share.sum(axis=(0, 1))
    of_choices = _TRIALS_OF_ERRORS * prior.of_choices + share.sum(axis=(1, 2))
    return Belief(
        mean,
        scatter / (total + _TRIALS_OF_COVARIANCE),
        of_shapes / of_shapes.sum(),
        belief.choices,
        of_choices / of_choices.sum(),
    )


def _typical(belief: Belief, means: FloatArray) -> FloatArray:
    """How much each trial counts, (T, 1), by its level, drift and gain (3, T)."""
    away = means - belief.mean[:, None]
    distance = np.einsum("it,ij,jt->t", away, np.linalg.inv(belief.covariance), away)
    counts = (_DEGREES_OF_TRIALS + 3.0) / (_DEGREES_OF_TRIALS + distance)
    typical: FloatArray = np.minimum(counts, 1.0)[:, None]
    return typical


def _squares(share: FloatArray, parts: Sequence[FloatArray]) -> FloatArray:
    """Sums over choices, trials and shapes of share times two parts, (3, 3)."""
    squares = np.empty((len(parts), len(parts)))
    for row, one in enumerate(parts):
        shared = share * one
        for column, other in enumerate(parts[: row + 1]):
            squares[row, column] = squares[column, row] = np.einsum("ktm,ktm->", shared, other)
    return squares


def _unsure(share: FloatArray, found: Posterior) -> FloatArray:
    """Sum over trials of the covariance of level, drift and gain that is left, (3, 3)."""
    per_gain = (-found.level_per_gain, -found.drift_per_gain, np.ones(()))
    spread = share * found.gain_variance
    squares = _squares(spread, [np.broadcast_to(part, spread.shape) for part in per_gain])
    level, both, drift = np.einsum("kt,ktc->c", share.sum(axis=2), found.covariance)
    squares[:2, :2] += np.array([[level, both], [both, drift]])
    return squares
