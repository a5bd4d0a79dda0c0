"""Prior of a study's learning curves, fitted to all trials with few or many reports.

The value of a trial is ``a + d drift(u) + g shape(u) + error(u) + noise``. Level a, drift d and
gain g are normal across trials. Shape, error and noise of a trial are categorical. Empirical Bayes
fits mean, covariance and frequencies to the reports by expectation and maximisation, with a weak
prior for any study (Dempster et al. 1977, mixtures of linear regressions). Pruned trials count
with their reports, which avoids survivorship bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.published.learning_curves.filter import ROUGH, SMOOTH, ReportStatistics
from autoscaler.policies.published.learning_curves.reports import BinnedReports
from autoscaler.policies.published.learning_curves.shapes import Shapes

# Candidate noises of a report, in scales of the study's values.
NOISE = 0.004 * 2.6 ** np.arange(5)
# Prior of level, drift and gain, in scales: curves improve, and continue to improve.
MEAN = np.array([0.0, 0.2, 2.0])
DEVIATION = np.array([1.0, 0.3, 1.5])
# Prior scale of errors over a factor e of progress; larger errors are improbable.
_LARGE_ERROR = 0.7
# Weight of the prior of each part, in trials.
_TRIALS_OF_MEAN = 0.5
_TRIALS_OF_COVARIANCE = 3.0
_TRIALS_OF_SHAPES = 4.0
_TRIALS_OF_ERRORS = 1.0
_MOST_TRIALS = 48
_ROUNDS = 4
# Degrees of freedom of the t distribution by which outlying trials have less weight.
_DEGREES_OF_TRIALS = 4.0
# Relative frequency below which a choice of error and noise is dropped.
_LEAST_FREQUENCY = 1e-3


@dataclass(frozen=True, slots=True)
class TrialChoices:
    """K pairs of an error (index in `ROUGH`) and a noise in scales, each (K,)."""

    error: NDArray[np.intp]
    noise: FloatArray

    def among(self, kept: NDArray[np.bool_]) -> TrialChoices:
        """Return the choices where `kept` (K,) is true."""
        return TrialChoices(self.error[kept], self.noise[kept])


@dataclass(frozen=True, slots=True)
class StudyPrior:
    """Prior of a study's curves.

    Attributes:
        mean: mean of level, drift and gain, (3,).
        covariance: their covariance across trials, (3, 3).
        of_shapes: frequency of each shape, (M,).
        choices: choices of error and noise.
        of_choices: frequency of each choice, (K,).
    """

    mean: FloatArray
    covariance: FloatArray
    of_shapes: FloatArray
    choices: TrialChoices
    of_choices: FloatArray


@dataclass(frozen=True, slots=True)
class CurvePosterior:
    """Posterior of T trials under K choices and M shapes.

    Given the gain, level and drift have the means ``level - level_per_gain * gain`` and ``drift -
    drift_per_gain * gain``.

    Attributes:
        log_weight: log of the joint weight of choice and shape, frequencies included, (K, T, M).
        gain: mean of the gain, (K, T, M).
        gain_variance: variance of the gain, (K, T, M).
        level: mean of the level at a gain of 0, (K, T).
        level_per_gain: decrease of that mean per unit of gain, (K, T, M).
        drift: mean of the drift at a gain of 0, (K, T).
        drift_per_gain: decrease of that mean per unit of gain, (K, T, M).
        covariance: variance of the level, covariance, variance of the drift, (K, T, 3).
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
    """Return the indices of trials with reports, at most 48 of them, evenly spaced."""
    started = np.flatnonzero((reports.count > 0).any(axis=1))
    even = np.linspace(0, len(started) - 1, min(len(started), _MOST_TRIALS))
    return started[even.astype(np.intp)]


def learn(evidence: ReportStatistics, shapes: Shapes, some: NDArray[np.intp]) -> StudyPrior:
    """Return the prior fitted to some of the trials; the general prior if there are none."""
    belief = prior = _general_prior(shapes)
    if len(some):
        for _ in range(_ROUNDS):
            trial_posterior = posterior(evidence, shapes, belief, some)
            belief = _maximised(prior, belief, trial_posterior)
    kept = belief.of_choices >= _LEAST_FREQUENCY * belief.of_choices.max()
    inflation = 1.0 + 1.0 / (len(some) + _TRIALS_OF_MEAN)
    return StudyPrior(
        belief.mean,
        belief.covariance * inflation,
        belief.of_shapes,
        belief.choices.among(kept),
        belief.of_choices[kept],
    )


def posterior(
    evidence: ReportStatistics, shapes: Shapes, belief: StudyPrior, trials: NDArray[np.intp]
) -> CurvePosterior:
    """Return the posterior of some trials, given the study's prior."""
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
    gain_precision = inverse[2, 2] + evidence.square[error, trials] / noise
    gain_precision -= with_level * level_per_gain + with_drift * drift_per_gain
    gain_pull = pull[2] + evidence.mixed[error, 0, trials] / noise
    gain_pull -= level_per_gain * level[..., None] + drift_per_gain * drift[..., None]
    gain = gain_pull / gain_precision
    log_weight = 0.5 * (gain_pull * gain - np.log(gain_precision) - fit[..., None])
    log_weight += np.log(belief.of_choices)[:, None, None] + np.log(belief.of_shapes)
    log_weight[:, shapes.own[trials]] = -np.inf
    return CurvePosterior(
        log_weight, gain, 1.0 / gain_precision, level_mean, level_per_gain, drift_mean,
        drift_per_gain, covariance,
    )  # fmt: skip


def weights(log_weight: FloatArray) -> FloatArray:
    """Return posterior probabilities of choices and shapes, (K, T, M), summing to 1 per trial."""
    share = np.exp(log_weight - log_weight.max(axis=(0, 2), keepdims=True))
    shares: FloatArray = share / share.sum(axis=(0, 2), keepdims=True)
    return shares


def _general_prior(shapes: Shapes) -> StudyPrior:
    """Return the prior of a study without trials."""
    choices = TrialChoices(
        np.repeat(np.arange(len(ROUGH)), len(NOISE)), np.tile(NOISE, len(ROUGH))
    )
    size = choices.noise * np.maximum(ROUGH, SMOOTH)[choices.error]
    frequency = 1.0 / (1.0 + (size / _LARGE_ERROR) ** 4)
    frequency /= frequency.sum()
    return StudyPrior(MEAN, np.diag(DEVIATION**2), shapes.weight, choices, frequency)


def _maximised(
    prior: StudyPrior, belief: StudyPrior, trial_posterior: CurvePosterior
) -> StudyPrior:
    """Return the prior of one maximisation step, from the posteriors under the last prior."""
    share = weights(trial_posterior.log_weight)
    level = (
        trial_posterior.level[..., None] - trial_posterior.level_per_gain * trial_posterior.gain
    )
    drift = (
        trial_posterior.drift[..., None] - trial_posterior.drift_per_gain * trial_posterior.gain
    )
    means = (level, drift, trial_posterior.gain)
    share *= _trial_weights(belief, np.array([(share * part).sum(axis=(0, 2)) for part in means]))
    total = float(share.sum())
    sums = np.array([np.einsum("ktm,ktm->", share, part) for part in means])
    mean = (_TRIALS_OF_MEAN * prior.mean + sums) / (total + _TRIALS_OF_MEAN)
    mean_change = mean - prior.mean
    scatter = _second_moments(share, means) + _posterior_moments(share, trial_posterior)
    scatter -= np.outer(mean, sums) + np.outer(sums, mean) - total * np.outer(mean, mean)
    scatter += _TRIALS_OF_COVARIANCE * prior.covariance + _TRIALS_OF_MEAN * np.outer(
        mean_change, mean_change
    )
    of_shapes = _TRIALS_OF_SHAPES * prior.of_shapes + share.sum(axis=(0, 1))
    of_choices = _TRIALS_OF_ERRORS * prior.of_choices + share.sum(axis=(1, 2))
    return StudyPrior(
        mean,
        scatter / (total + _TRIALS_OF_COVARIANCE),
        of_shapes / of_shapes.sum(),
        belief.choices,
        of_choices / of_choices.sum(),
    )


def _trial_weights(belief: StudyPrior, means: FloatArray) -> FloatArray:
    """Return the weight of each trial, (T, 1), from its level, drift and gain (3, T)."""
    deviation = means - belief.mean[:, None]
    distance = np.einsum("it,ij,jt->t", deviation, np.linalg.inv(belief.covariance), deviation)
    ratio = (_DEGREES_OF_TRIALS + 3.0) / (_DEGREES_OF_TRIALS + distance)
    trial_weights: FloatArray = np.minimum(ratio, 1.0)[:, None]
    return trial_weights


def _second_moments(share: FloatArray, parts: Sequence[FloatArray]) -> FloatArray:
    """Return the sums over choices, trials and shapes of share times two parts, (3, 3)."""
    squares = np.empty((len(parts), len(parts)))
    for row, first in enumerate(parts):
        weighted = share * first
        for column, second in enumerate(parts[: row + 1]):
            squares[row, column] = squares[column, row] = np.einsum("ktm,ktm->", weighted, second)
    return squares


def _posterior_moments(share: FloatArray, trial_posterior: CurvePosterior) -> FloatArray:
    """Return the sum over trials of the posterior covariance of level, drift and gain, (3, 3)."""
    per_gain = (-trial_posterior.level_per_gain, -trial_posterior.drift_per_gain, np.ones(()))
    spread = share * trial_posterior.gain_variance
    squares = _second_moments(spread, [np.broadcast_to(part, spread.shape) for part in per_gain])
    level, shared, drift = np.einsum("kt,ktc->c", share.sum(axis=2), trial_posterior.covariance)
    squares[:2, :2] += np.array([[level, shared], [shared, drift]])
    return squares
