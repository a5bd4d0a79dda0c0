"""Speeds of a study's trials on every size, learnt from their siblings.

Trials of a study run the same program with other hyper-parameters. On n devices, at a batch that
stays the same, a trial makes

    rate(n) = rate(1) / (1/n + r (1 - 1/n))

units of progress a second: the devices share the computation of a step, and synchronization takes
r times as long as that computation takes on one device. (A ring all-reduce moves (1 - 1/n) of
twice the gradients: Patarasuk and Yuan 2009.) Gradients are as large whatever the batch is, and
computation is not: r falls as 1 / batch. So one trial that was measured on two sizes tells how all
of them scale, each at its own batch.

Two Gaussian processes, one over the logarithm of rate(1) and one over the logarithm of r, are
linear in the hyper-parameters, with a deviation of each trial of its own (Rasmussen and Williams
2006, section 2.7). Draws from their posteriors are made by Matheron's rule (Wilson et al. 2020,
"Efficiently sampling functions from Gaussian process posteriors").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import scipy  # its parts are imported when first used, which takes half a second

from autoscaler.goodput.batch_search import IntArray
from autoscaler.goodput.throughput import FloatArray

_JITTER = 1e-8
# A column of hyper-parameters that spans more than this factor counts by its logarithm.
_SPAN_OF_LOGARITHMS = 8.0
# Degrees of freedom of Student's distribution: a few trials are far slower than the others.
_DEGREES = 4.0
# Bounds of r: communication that is hidden entirely, and a trial that no device makes faster.
_LEAST_SYNC, _MOST_SYNC = 1e-3, 30.0
# Measured below this, r can't be told from noise.
_LEAST_MEASURED_SYNC = 0.01
_LEAST_SYNC_ERROR, _MOST_SYNC_ERROR = 0.05, 2.0
# Uses of random numbers.
_SYNC, _LEVEL, _NOISE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class SiblingPrior:
    """Prior widths (standard deviations of natural logarithms) and means.

    Attributes:
        study_level: rate on one device, of the study as a whole.
        feature_level: rate on one device, by all hyper-parameters together.
        own_level: rate on one device, by what the hyper-parameters do not tell.
        kind_level: rate on one device, of a device kind for all trials alike.
        sync: logarithm of r at the mean batch on two devices.
        study_sync: r of the study as a whole.
        batch_sync_slope: by how much log r grows with the logarithm of the batch.
        batch_sync: that slope.
        device_sync_slope: by how much log r grows with each doubling of devices.
        device_sync: that slope.
        feature_sync: r by all hyper-parameters together.
        own_sync: r of one trial.
        point_sync: r of one trial on one size.
        kind_sync: r of a device kind.
        noise: one measured rate.
    """

    study_level: float = 1.0
    feature_level: float = 1.0
    own_level: float = 0.4
    kind_level: float = 0.8
    sync: float = -2.3
    study_sync: float = 1.5
    batch_sync_slope: float = -1.0
    batch_sync: float = 0.4
    device_sync_slope: float = 0.3
    device_sync: float = 0.2
    feature_sync: float = 0.3
    own_sync: float = 0.3
    point_sync: float = 0.25
    kind_sync: float = 0.5
    noise: float = 0.03


@dataclass(frozen=True, slots=True, eq=False)
class Siblings:
    """N trials of one study, those that have ended included.

    Attributes:
        features: hyper-parameters as `hyper_parameter_features` returns them, (N, H).
        log_batch: logarithm of the batch, (N,); NaN where it is not known or changes.
        seeds: seed of the random numbers of each trial, N, the same in every plan.
    """

    features: FloatArray
    log_batch: FloatArray
    seeds: Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class StudySizes:
    """A sizes of trials: devices (A,), and a number for the kind of the devices (A,)."""

    devices: FloatArray
    kind: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class SpeedMeasurements:
    """M measured speeds: trial (M,), size (M,), logarithm of units a second (M,)."""

    trial: IntArray
    size: IntArray
    log_rate: FloatArray


def speedup(sync: FloatArray, devices: FloatArray) -> FloatArray:
    """Return the rate on so many devices over that on one, for synchronization r."""
    return 1.0 / (1.0 / devices + sync * (1.0 - 1.0 / devices))


def hyper_parameter_features(values: FloatArray) -> FloatArray:
    """Return numeric hyper-parameters (N, H) as features: centred, of unit width, NaN as the mean.

    A column of positive numbers that spans a factor of 8 counts by its logarithm; one that is the
    same for all trials becomes 0.
    """
    columns = []
    for column in np.asarray(values, dtype=np.float64).T:
        known = column[np.isfinite(column)]
        if len(known) and known.min() > 0 and known.max() > _SPAN_OF_LOGARITHMS * known.min():
            column = np.log(column)
        columns.append(_standardised(column))
    return np.stack(columns, axis=1) if columns else np.zeros((len(values), 0))


def sibling_speeds(
    siblings: Siblings,
    sizes: StudySizes,
    measured: SpeedMeasurements,
    unmeasured: float,
    count: int,
    prior: SiblingPrior | None = None,
) -> FloatArray:
    """Return `count` equally likely draws of all trials' units a second, (K, N, A).

    A trial's rate on a size on which it was measured is the measured one in all draws; on another
    size of the same kind it follows from the nearest measured one.

    Args:
        siblings: the trials.
        sizes: sizes that they may hold.
        measured: measured speeds, perhaps none.
        unmeasured: logarithm of units a second on one device, expected where nothing was measured.
        count: number of draws, K.
        prior: widths; those of `SiblingPrior` where None.
    """
    prior = prior or SiblingPrior()
    half = (count + 1) // 2
    sync = _sync_draws(siblings, sizes, measured, prior, half)
    log_speedup = np.log(speedup(np.exp(sync), sizes.devices))[:count]
    typical = unmeasured
    if len(measured.trial):
        usual = np.log(speedup(np.exp(np.array(prior.sync)), sizes.devices))
        typical = float(np.median(measured.log_rate - usual[measured.size]))
    level = _level_draws(siblings, sizes, measured, typical, prior, log_speedup, half)[:count]
    kinds = np.unique(sizes.kind)
    log_rate = level[:, :, np.searchsorted(kinds, sizes.kind)] + log_speedup
    for (trial, kind), places in _by_trial_and_kind(measured, sizes).items():
        columns = np.flatnonzero(sizes.kind == kind)
        doublings = np.log2(sizes.devices)
        seen = measured.size[places]
        apart = np.abs(doublings[columns][:, None] - doublings[seen])
        nearest = apart.argmin(axis=1)
        log_rate[:, trial, columns] = (
            measured.log_rate[places][nearest]
            + log_speedup[:, trial, columns]
            - log_speedup[:, trial, seen[nearest]]
        )
    return np.exp(log_rate)


def _by_trial_and_kind(
    measured: SpeedMeasurements, sizes: StudySizes
) -> Mapping[tuple[int, int], IntArray]:
    """Return places of the measurements of each trial on each kind, the fewest devices first."""
    places: dict[tuple[int, int], list[int]] = {}
    order = np.argsort(sizes.devices[measured.size], kind="stable")
    for place in order.tolist():
        key = int(measured.trial[place]), int(sizes.kind[measured.size[place]])
        places.setdefault(key, []).append(place)
    return {key: np.array(of_trial, dtype=np.int64) for key, of_trial in places.items()}


def _sync_draws(
    siblings: Siblings,
    sizes: StudySizes,
    measured: SpeedMeasurements,
    prior: SiblingPrior,
    half: int,
) -> FloatArray:
    """Return draws of log r of every trial on every size, (2 * half, N, A)."""
    trials, count = len(siblings.features), len(sizes.devices)
    batch, doublings = _centred(siblings.log_batch), np.log2(sizes.devices) - 1.0
    trial, size = np.repeat(np.arange(trials), count), np.tile(np.arange(count), trials)
    mean = prior.sync + prior.batch_sync_slope * batch[trial]
    mean = mean + prior.device_sync_slope * doublings[size]
    process = _Process(
        np.concatenate(
            [
                np.full((len(trial), 1), prior.study_sync),
                prior.batch_sync * batch[trial, None],
                prior.device_sync * doublings[size, None],
                prior.feature_sync * _scaled(siblings.features)[trial],
                prior.kind_sync * _one_hot(sizes.kind)[size],
            ],
            axis=1,
        ),
        trial,
        prior.own_sync,
        prior.point_sync,
    )
    seen, log_sync, error = _measured_sync(measured, sizes, prior.noise)
    points = measured.trial[seen] * count + measured.size[seen]
    rng = [np.random.default_rng([seed, _SYNC]) for seed in siblings.seeds]
    posterior = process.posterior(points, log_sync - mean[points], error, rng, half)
    draws = _mirrored(mean + posterior[0], posterior[1]).reshape(2 * half, trials, count)
    return np.clip(draws, np.log(_LEAST_SYNC), np.log(_MOST_SYNC))


def _measured_sync(
    measured: SpeedMeasurements, sizes: StudySizes, noise: float
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return what rates on two sizes of one kind tell of r.

    Returns:
        Places of the measurements on the larger sizes, log r there, and its standard error, (M,)
        each.
    """
    seen, log_sync, error = [], [], []
    for places in _by_trial_and_kind(measured, sizes).values():
        least = places[0]
        for place in places[1:].tolist():
            devices = sizes.devices[measured.size[[least, place]]]
            ratio = float(np.exp(measured.log_rate[place] - measured.log_rate[least]))
            value = _sync_of(ratio, devices)
            other = _sync_of(ratio * np.exp(-1.5 * noise), devices)
            seen.append(place)
            log_sync.append(np.log(value))
            off = abs(np.log(other / value))
            error.append(min(max(off, _LEAST_SYNC_ERROR), _MOST_SYNC_ERROR))
    return np.array(seen, dtype=np.int64), np.array(log_sync), np.array(error)


def _sync_of(ratio: float, devices: FloatArray) -> float:
    """Return r of a trial that is `ratio` times as fast on devices[1] as on devices[0]."""
    few, many = 1.0 / float(devices[0]), 1.0 / float(devices[1])
    numerator, denominator = few - ratio * many, ratio * (1.0 - many) - (1.0 - few)
    if denominator <= 0:
        return _MOST_SYNC
    return min(max(numerator / denominator, _LEAST_MEASURED_SYNC), _MOST_SYNC)


def _level_draws(
    siblings: Siblings,
    sizes: StudySizes,
    measured: SpeedMeasurements,
    typical: float,
    prior: SiblingPrior,
    log_speedup: FloatArray,
    half: int,
) -> FloatArray:
    """Return draws of log rate on one device of every trial and of C kinds, (2 * half, N, C)."""
    trials, kinds = len(siblings.features), np.unique(sizes.kind)
    places = _by_trial_and_kind(measured, sizes).values()
    least = np.array([of_trial[0] for of_trial in places], dtype=np.int64)
    size = measured.size[least]
    seen = log_speedup[:, measured.trial[least], size]
    points = measured.trial[least] * len(kinds) + np.searchsorted(kinds, sizes.kind[size])
    surprise = measured.log_rate[least] - np.median(seen, axis=0) - typical
    error = np.sqrt(prior.noise**2 + seen.var(axis=0))
    trial = np.repeat(np.arange(trials), len(kinds))
    process = _Process(
        np.concatenate(
            [
                np.full((len(trial), 1), prior.study_level),
                prior.feature_level * _scaled(siblings.features)[trial],
                prior.kind_level * np.tile(np.eye(len(kinds)), (trials, 1)),
            ],
            axis=1,
        ),
        trial,
        prior.own_level,
    )
    rng = [np.random.default_rng([seed, _LEVEL]) for seed in siblings.seeds]
    mean, deviation = process.posterior(points, surprise, error, rng, half)
    tails = np.stack([numbers.chisquare(_DEGREES, half) for numbers in rng], axis=1)
    draws = _mirrored(typical + mean, deviation * np.sqrt(_DEGREES / tails)[:, trial])
    return draws.reshape(2 * half, trials, len(kinds))


@dataclass(frozen=True, slots=True, eq=False)
class _Process:
    """Gaussian process of mean 0 at P points of N trials.

    Attributes:
        features: what all trials share, (P, D): their inner products are covariances.
        trial: trial of each point, (P,).
        trial_width: standard deviation that the points of one trial share.
        point_width: standard deviation of each point by itself.
    """

    features: FloatArray
    trial: IntArray
    trial_width: float
    point_width: float = 0.0

    def posterior(
        self,
        points: IntArray,
        surprise: FloatArray,
        error: FloatArray,
        rng: Sequence[np.random.Generator],
        draws: int,
    ) -> tuple[FloatArray, FloatArray]:
        """Condition the process on M of its points.

        Args:
            points: the measured points, (M,).
            surprise: their values, (M,).
            error: standard errors of these, (M,).
            rng: random numbers of each trial, N.
            draws: number of draws, K.

        Returns:
            Posterior mean (P,), and draws of the deviation from it (K, P).
        """
        count, width = self.features.shape
        of_trial = np.stack([numbers.standard_normal(draws) for numbers in rng])[self.trial]
        alone = [numbers.standard_normal((count // len(rng), draws)) for numbers in rng]
        deviation = self.features @ _shared_normal(width, draws) + self.trial_width * of_trial
        deviation = deviation + self.point_width * np.concatenate(alone)
        if not len(points):
            return np.zeros(count), deviation.T
        same = self.trial[:, None] == self.trial[points]
        covariance = self.features @ self.features[points].T + self.trial_width**2 * same
        covariance += self.point_width**2 * (np.arange(count)[:, None] == points)
        factor = scipy.linalg.cho_factor(
            covariance[points] + np.diag(error**2 + _JITTER), lower=True
        )
        noise = error[:, None] * np.random.default_rng(_NOISE).standard_normal(
            (len(points), draws)
        )
        seen = deviation[points] + noise
        mean: FloatArray = covariance @ scipy.linalg.cho_solve(factor, surprise)
        return mean, (deviation - covariance @ scipy.linalg.cho_solve(factor, seen)).T


def _mirrored(mean: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return draws on both sides of the mean, so that their mean is it, (2K, P)."""
    draws: FloatArray = mean + np.concatenate([deviation, -deviation])
    return draws


def _shared_normal(rows: int, columns: int) -> FloatArray:
    """Return standard normal numbers that all trials share, the same in every plan.

    Each row is stratified: with its mirror image it has the quantiles of the distribution, so that
    a few draws spread as far as they should.
    """
    rng = np.random.default_rng(rows)
    places = (np.arange(columns) + 0.5) / (2.0 * columns) + 0.5
    quantiles = np.array([NormalDist().inv_cdf(place) for place in places])
    signs = rng.choice([-1.0, 1.0], size=(rows, columns))
    shuffled: FloatArray = rng.permuted(np.tile(quantiles, (rows, 1)), axis=1) * signs
    return shuffled


def _scaled(features: FloatArray) -> FloatArray:
    """Return features whose squares add up to 1 for a usual trial, (N, H)."""
    scaled: FloatArray = features / np.sqrt(max(features.shape[1], 1))
    return scaled


def _centred(values: FloatArray) -> FloatArray:
    """Return values less their mean; 0 where they are not known."""
    known = np.isfinite(values)
    if not known.any():
        return np.zeros(len(values))
    centred: FloatArray = np.where(known, values - values[known].mean(), 0.0)
    return centred


def _one_hot(kind: IntArray) -> FloatArray:
    hot: FloatArray = (kind[:, None] == np.unique(kind)).astype(np.float64)
    return hot


def _standardised(column: FloatArray) -> FloatArray:
    known = np.isfinite(column)
    if not known.any():
        return np.zeros(len(column))
    width = float(column[known].std())
    if width <= 1e-12 * max(float(np.abs(column[known]).max()), 1e-300):
        return np.zeros(len(column))
    features: FloatArray = np.where(known, (column - column[known].mean()) / width, 0.0)
    return features
