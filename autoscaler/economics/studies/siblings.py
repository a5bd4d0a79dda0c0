"""How fast a trial will be, from how fast its siblings are.

Trials of a study run the same program at other hyper-parameters. Batch size and width decide how
long a unit of work takes on one device and how that scales, so siblings teach as much as their
hyper-parameters are alike. The model is a Gaussian process over the logarithm of units a second:

    log G_i(a) = typical(a) + f_study(a) + x_i . w(a) + u_i(a) + noise

where each of f, w and u is a level plus a scaling that is 0 on one device and grows with every
doubling of devices: in part alike for all doublings, in part each by itself. What x can't tell
shrinks to the mean of the study, what nobody measured to `typical`. How alike the trials are is
taken from the measurements themselves: the most likely of a few ratios.

Source: Gaussian processes with a linear and an additive kernel (Rasmussen and Williams 2006,
sections 2.7 and 5.4.1); the widths are those of the priors in docs/goodput.md where there are any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from autoscaler.economics.supply import IntArray
from autoscaler.goodput.throughput import FloatArray

_JITTER = 1e-8
# A column that spans more than this factor is told in logarithms.
_SPAN_OF_LOGARITHMS = 8.0
_LIKENESS = (0.3, 1.0, 3.0)
_OWN = (0.7, 1.5, 3.0)
# Now and then one is much slower than the rest: draws have Student's tails, of so many degrees.
_DEGREES = 4.0
# A fixed batch on twice the devices loses at least so much of each: else equal sizes look free.
_LEAST_LOSS = 0.02
_SPREAD = 1_000_003


@dataclass(frozen=True, slots=True)
class SiblingPrior:
    """Standard deviations of logarithms: of levels, and of scaling for each doubling.

    Attributes:
        study_level: of the study as a whole against `typical`.
        feature_level: what all hyper-parameters together explain.
        own_level: what they do not.
        study_scaling: of each doubling of devices, for the study as a whole.
        feature_scaling: what all hyper-parameters together explain of it.
        own_scaling: what they do not.
        kind_level: between two kinds of device, for all trials alike.
        noise: of a measurement.
    """

    study_level: float = 1.0
    feature_level: float = 1.0
    own_level: float = 0.4
    study_scaling: float = 0.2
    feature_scaling: float = 0.4
    own_scaling: float = 0.15
    kind_level: float = 0.8
    noise: float = 0.03


@dataclass(frozen=True, slots=True, eq=False)
class StudySizes:
    """A sizes of trials: devices, kind (any number that tells kinds apart), what is typical.

    `typical` is the logarithm of units a second expected before anything was measured, (A,).
    """

    devices: FloatArray
    kind: IntArray
    typical: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class SpeedMeasurements:
    """M measured speeds: whose, on which size, the logarithm of units a second."""

    trial: IntArray
    size: IntArray
    log_rate: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class SpeedModel:
    """What is believed of N trials on A sizes: logarithms of units a second.

    Attributes:
        mean: (N, A).
        sd: (N, A).
        covariance: of all, trial by trial, (N * A, N * A).
        sizes: what the columns are.
    """

    mean: FloatArray
    sd: FloatArray
    covariance: FloatArray
    sizes: StudySizes

    def draws(self, count: int, seed: Sequence[int] | int = 0) -> FloatArray:
        """Units a second in `count` equally likely cases, (K, N, A): the same for a seed.

        A seed for each trial keeps its luck the same whoever else there is: else each plan would
        be made for another future. The deviations of each trial have the tails of Student's
        distribution. Each doubling of devices loses at least 2 %: else the luckiest of many sizes
        would win.
        """
        half, size = (count + 1) // 2, len(self.covariance)
        trials, sizes = self.mean.shape
        lucks = [seed * _SPREAD + n for n in range(trials)] if isinstance(seed, int) else seed
        generators = [np.random.default_rng(luck) for luck in lucks]
        normal = np.concatenate([rng.standard_normal((half, sizes)) for rng in generators], axis=1)
        chi = np.stack([rng.chisquare(_DEGREES, half) for rng in generators], axis=1)
        tails = np.sqrt(_DEGREES / chi)[:, :, None]
        root = np.linalg.cholesky(self.covariance + _JITTER * np.eye(size))
        deviations = (normal @ root.T).reshape(half, *self.mean.shape) * tails
        both = np.concatenate([deviations, -deviations])[:count]
        return np.exp(_diminishing(self.mean + both, self.sizes))


def hyper_parameter_features(values: FloatArray) -> FloatArray:
    """Numeric hyper-parameters (N, H) as features: centred, of unit width, NaN as the mean.

    A column of positive numbers that spans a factor of 8 counts by its logarithm; one that is the
    same for all trials says nothing and is 0.
    """
    columns = []
    for column in np.asarray(values, dtype=np.float64).T:
        known = column[np.isfinite(column)]
        if len(known) and known.min() > 0 and known.max() > _SPAN_OF_LOGARITHMS * known.min():
            column = np.log(column)
        columns.append(_standardised(column))
    return np.stack(columns, axis=1) if columns else np.zeros((len(values), 0))


def sibling_speeds(
    features: FloatArray,
    sizes: StudySizes,
    measured: SpeedMeasurements,
    prior: SiblingPrior | None = None,
    count: int | None = None,
) -> SpeedModel:
    """What the measured siblings say of all trials, the measured included.

    Args:
        features: of all N trials, (N, H), as `hyper_parameter_features` makes them.
        sizes: what they may hold.
        measured: what is known; may be empty.
        prior: widths; those of `SiblingPrior` where None.
        count: of how many, the first, anything is to be said; None: of all.
    """
    prior = prior or SiblingPrior()
    widths = _most_likely(features, sizes, measured, prior)
    trials = len(features) if count is None else count
    size_count = len(sizes.devices)
    trial = np.repeat(np.arange(trials), size_count)
    size = np.tile(np.arange(size_count), trials)
    covariance = _kernel(features, sizes, (trial, size), (trial, size), widths)
    mean = np.tile(sizes.typical, trials)
    if len(measured.trial):
        seen = measured.trial, measured.size
        across = _kernel(features, sizes, (trial, size), seen, widths)
        factor = cho_factor(_noisy(features, sizes, seen, widths), lower=True)
        mean = mean + across @ cho_solve(factor, _surprise(sizes, measured))
        covariance = covariance - across @ cho_solve(factor, across.T)
    sd = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    shape = trials, size_count
    return SpeedModel(
        mean.reshape(shape), sd.reshape(shape), (covariance + covariance.T) / 2, sizes
    )


def _diminishing(log_rate: FloatArray, sizes: StudySizes) -> FloatArray:
    """Units a second that fall a little a device with every doubling, (..., A), in logarithms."""
    devices = np.log(sizes.devices) - _LEAST_LOSS * np.log2(sizes.devices)
    capped = log_rate - devices
    for kind in np.unique(sizes.kind):
        places = np.flatnonzero(sizes.kind == kind)
        places = places[np.argsort(sizes.devices[places], kind="stable")]
        capped[..., places] = np.minimum.accumulate(capped[..., places], axis=-1)
    most: FloatArray = capped + devices
    return most


def _standardised(column: FloatArray) -> FloatArray:
    known = np.isfinite(column)
    if not known.any():
        return np.zeros(len(column))
    width = float(column[known].std())
    if width <= 1e-12 * max(float(np.abs(column[known]).max()), 1e-300):
        return np.zeros(len(column))
    features: FloatArray = np.where(known, (column - column[known].mean()) / width, 0.0)
    return features


def _most_likely(
    features: FloatArray,
    sizes: StudySizes,
    measured: SpeedMeasurements,
    prior: SiblingPrior,
) -> SiblingPrior:
    """The prior with the ratio of alike to own under which the measurements are most likely."""
    if len(np.unique(measured.trial)) < 3:
        return prior
    candidates = [
        replace(
            prior,
            feature_level=prior.feature_level * like,
            feature_scaling=prior.feature_scaling * like,
            own_level=prior.own_level * own,
            own_scaling=prior.own_scaling * own,
        )
        for like, own in product(_LIKENESS, _OWN)
    ]
    return max(candidates, key=lambda one: _log_likelihood(features, sizes, measured, one))


def _log_likelihood(
    features: FloatArray,
    sizes: StudySizes,
    measured: SpeedMeasurements,
    prior: SiblingPrior,
) -> float:
    seen = measured.trial, measured.size
    factor = cho_factor(_noisy(features, sizes, seen, prior), lower=True)
    surprise = _surprise(sizes, measured)
    fit = float(surprise @ cho_solve(factor, surprise))
    return -0.5 * fit - float(np.log(np.diag(factor[0])).sum())


def _surprise(sizes: StudySizes, measured: SpeedMeasurements) -> FloatArray:
    surprise: FloatArray = measured.log_rate - sizes.typical[measured.size]
    return surprise


def _noisy(
    features: FloatArray,
    sizes: StudySizes,
    points: tuple[IntArray, IntArray],
    prior: SiblingPrior,
) -> FloatArray:
    kernel = _kernel(features, sizes, points, points, prior)
    return kernel + (prior.noise**2 + _JITTER) * np.eye(len(kernel))


def _kernel(
    features: FloatArray,
    sizes: StudySizes,
    rows: tuple[IntArray, IntArray],
    columns: tuple[IntArray, IntArray],
    prior: SiblingPrior,
) -> FloatArray:
    """Covariance between (trial, size) points."""
    likeness = features @ features.T / max(features.shape[1], 1)
    alike = likeness[rows[0]][:, columns[0]]
    same = rows[0][:, None] == columns[0]
    doublings = np.log2(sizes.devices)
    own, other = doublings[rows[1]][:, None], doublings[columns[1]]
    scaling = (own * other + np.minimum(own, other)) / 2.0
    kind = sizes.kind[rows[1]][:, None] == sizes.kind[columns[1]]
    level = prior.study_level**2 + prior.feature_level**2 * alike + prior.own_level**2 * same
    slope = prior.study_scaling**2 + prior.feature_scaling**2 * alike + prior.own_scaling**2 * same
    covariance: FloatArray = level + slope * scaling + prior.kind_level**2 * kind
    return covariance
