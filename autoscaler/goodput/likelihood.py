"""Measured step times as a robust least-squares problem: residuals, Jacobian and weights.

There are two kinds of rows, both log seconds: the step time of every observation, and the compute
time of observations with synchronisation (without it both are the same measurement). Step times
of one size share an error, because more batches measured at that size do not make the model more
accurate there. Compute times of one device batch share an error for the same reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from autoscaler.domain.report import StepObservation
from autoscaler.goodput.coordinates import gamma_slope, to_theta
from autoscaler.goodput.throughput import (
    Features,
    FloatArray,
    Formula,
    Predictor,
    overlapped_seconds,
)

# Log standard deviations: of a row with infinitely many timed steps; of a single step in addition;
# of the shared error of a size's step times; of that of a device batch's compute times.
ROW_LOG_DEVIATION = 0.05
STEP_LOG_DEVIATION = 0.15
SIZE_LOG_DEVIATION = 0.10
BATCH_LOG_DEVIATION = 0.05
# Log standard deviation of a device batch from the formula, beyond the error of its size. Seconds
# of a micro-step are rarely linear in its examples, as the formula assumes.
CURVE_LOG_DEVIATION = 0.15
# Degrees of freedom of the errors of rows and sizes. With 4, a row 10 times off the level of its
# size has almost no weight, and neither has a size 10 times off the formula.
DEGREES_OF_FREEDOM = 4.0
# The assumed deviation counts as this many rows when the deviation is estimated.
ASSUMED_ROWS = 8.0
WEIGHT_ITERATIONS = 10
# `robust_weights` starts with this many iterations at WIDE_SIZE_LOG_DEVIATION.
WIDE_ITERATIONS = 2
WIDE_SIZE_LOG_DEVIATION = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class FitRows:
    """n observations of one job on one kind of device, and the r rows made from them.

    Attributes:
        places: instances, devices, device batch and accumulation, (4, n).
        waits: whether an observation includes synchronisation, (n,).
        log_seconds: rows (r,): the step times of all, then the compute times where `waits`.
        variance: variances of the rows (r,), in units of ROW_LOG_DEVIATION squared.
        sizes: (instances, devices) of the first groups. A size has one group per era, the latest
            era last.
        is_latest: whether a group of `sizes` is the latest era of its size.
        is_settled: whether a group of `sizes` has at least two reports.
        groups: 1 where a row belongs to a group, else 0, (g, r); each row belongs to one group.
        group_variance: variances of the errors that the rows of a group share, (g,).
    """

    places: FloatArray
    waits: NDArray[np.bool_]
    log_seconds: FloatArray
    variance: FloatArray
    sizes: tuple[tuple[int, int], ...]
    is_latest: NDArray[np.bool_]
    is_settled: NDArray[np.bool_]
    groups: FloatArray
    group_variance: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Weights of rows and variances of shared errors.

    `rows` (r,) are inverse variances given the shared errors. `shared_variance` (g,) is the
    variance of a group's shared error given its rows; multiplied by the group's weighted sum of
    residuals it gives the mean of the shared error.
    """

    rows: FloatArray
    shared_variance: FloatArray


def measurements(observations: Sequence[StepObservation], formula: Formula) -> FitRows:
    """Return the observations as rows; c observations of one configuration have the weight of one.

    Raises:
        ValueError: an observation is not possible; the message names the field.
    """
    for observation in observations:
        _validate(observation)
    places = np.array(
        [
            (
                observation.instances,
                observation.devices,
                observation.device_batch,
                observation.accumulation,
            )
            for observation in observations
        ],
        dtype=np.float64,
    ).reshape(-1, 4)
    waits = np.asarray(sum(formula.sync_features(places[:, 0], places[:, 1]))) > 0
    step = np.array([observation.step_seconds for observation in observations])
    compute = np.array([observation.compute_seconds for observation in observations])
    steps = np.array([observation.steps for observation in observations], dtype=np.float64)
    _, configuration, repeats = np.unique(places, axis=0, return_inverse=True, return_counts=True)
    variance = repeats[configuration] + (STEP_LOG_DEVIATION / ROW_LOG_DEVIATION) ** 2 / steps
    eras, size_of = np.unique(
        np.array([(*observation.size, observation.era) for observation in observations]).reshape(
            -1, 3
        ),
        axis=0,
        return_inverse=True,
    )
    sizes = tuple((int(instances), int(devices)) for instances, devices, _ in eras)
    is_latest = np.ones(len(sizes), dtype=np.bool_)
    is_latest[:-1] = (eras[1:, :2] != eras[:-1, :2]).any(axis=1)
    report_counts = [1 + observation.is_settled for observation in observations]
    reports = np.bincount(size_of, report_counts, len(sizes))
    batches, batch_of = np.unique(places[waits, 2], return_inverse=True)
    group_of = np.concatenate([size_of, len(sizes) + batch_of])
    return FitRows(
        places=places.T,
        waits=waits,
        log_seconds=np.log(np.concatenate([step, compute[waits]])),
        variance=np.concatenate([variance, variance[waits]]),
        sizes=sizes,
        is_latest=is_latest,
        is_settled=reports > 1,
        groups=(group_of == np.arange(len(sizes) + len(batches))[:, None]).astype(np.float64),
        group_variance=np.repeat(
            [SIZE_LOG_DEVIATION**2, BATCH_LOG_DEVIATION**2], [len(sizes), len(batches)]
        ),
    )


def log_predictions(data: FitRows, predictor: Predictor) -> FloatArray:
    """Return the predicted log seconds of each row: ``predictor.theta.shape[:-1] + (r,)``."""
    instances, devices, batch, accumulation = data.places
    step = predictor.step_seconds(instances, devices, batch, accumulation)
    compute = predictor.compute_seconds(instances, devices, batch)[..., data.waits]
    seconds = np.concatenate([step, compute], axis=-1)
    log_seconds: FloatArray = np.log(seconds)
    return log_seconds


def linearise(
    data: FitRows, formula: Formula, coordinates: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return residuals (r,), measured minus predicted, and the Jacobian (r, p) of predictions."""
    theta = to_theta(coordinates)
    instances, devices, batch, accumulation = data.places
    compute, compute_slopes = _linear_compute(data, formula, theta)
    sync_slopes = _log_slopes(
        theta[len(compute_slopes) : -1], formula.sync_features(instances, devices), batch
    )
    sync = sync_slopes.sum(axis=0)
    overlapped = overlapped_seconds(compute, sync, theta[-1:])
    step = accumulation * compute + overlapped
    gamma = float(theta[-1])
    compute_share, sync_share = compute / overlapped, sync / overlapped
    entropy = _power_log(compute_share, gamma) + _power_log(sync_share, gamma)
    step_slopes = np.concatenate(
        [
            compute_slopes * (accumulation + compute_share ** (gamma - 1.0)),
            sync_slopes * sync_share ** (gamma - 1.0),
            (overlapped * entropy / gamma * gamma_slope(gamma))[None, :],
        ]
    )
    jacobian = np.zeros((len(data.log_seconds), len(theta)))
    jacobian[: len(step)] = (step_slopes / step).T
    jacobian[len(step) :, : len(compute_slopes)] = (compute_slopes / compute).T[data.waits]
    predicted = np.log(np.concatenate([step, compute[data.waits]]))
    return data.log_seconds - predicted, jacobian


def _linear_compute(
    data: FitRows, formula: Formula, theta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the seconds of a micro-step (n,), and its derivatives (t, n) in coordinates.

    They are with respect to the coordinates of the parameters before those of T_sync.
    """
    instances, devices, batch, _ = data.places
    features = formula.compute_features(instances, devices, batch)
    compute_slopes = _log_slopes(theta[: len(features)], features, batch)
    compute = compute_slopes.sum(axis=0)
    gathers = formula.gather_features(instances, devices)
    if not gathers:
        return compute, compute_slopes
    place = len(features) + len(gathers)
    gather_slopes = _log_slopes(theta[len(features) : place], gathers, batch)
    gather = gather_slopes.sum(axis=0)
    overlap = float(theta[place])
    micro = overlapped_seconds(compute, gather, theta[place : place + 1] + 1.0)
    compute_share, gather_share = compute / micro, gather / micro
    power = 1.0 + overlap
    entropy = _power_log(compute_share, power) + _power_log(gather_share, power)
    slopes = np.concatenate(
        [
            compute_slopes * compute_share**overlap,
            gather_slopes * gather_share**overlap,
            (micro * entropy / power * overlap)[None, :],
        ]
    )
    return micro, slopes


def assumed_weights(data: FitRows) -> Weights:
    """Return the weights of rows under normal errors with the assumed deviations."""
    rows = 1.0 / (ROW_LOG_DEVIATION**2 * data.variance)
    return Weights(rows, _shared_variance(data.groups, data.group_variance, rows))


def robust_weights(data: FitRows, residuals: FloatArray) -> Weights:
    """Return the weights of rows under Student-t errors of rows and sizes.

    Both errors are scale mixtures of normals. Expectation maximisation alternates between the
    shared errors of groups, the scale of rows, and the weights. A row is compared with the level
    of its size, so that a size far off the formula keeps its rows. The scale of rows is estimated
    from the residuals. It is at least ROW_LOG_DEVIATION, a prior that counts as ASSUMED_ROWS rows.
    The first iterations assume wide size errors. Otherwise a single row far off would be dropped
    before the error of its size is estimated.
    """
    assumed = ROW_LOG_DEVIATION**2
    count = ASSUMED_ROWS + (1.0 / data.variance).sum()
    size_count = len(data.sizes)
    size_variance = data.group_variance[:size_count]
    group_variance = data.group_variance.copy()
    group_variance[:size_count] = WIDE_SIZE_LOG_DEVIATION**2
    scale = assumed
    rows = 1.0 / (scale * data.variance)
    for iteration in range(WEIGHT_ITERATIONS):
        variance = _shared_variance(data.groups, group_variance, rows)
        shared = variance * (data.groups @ (rows * residuals))
        squares = (residuals - shared @ data.groups) ** 2 / data.variance
        share = (DEGREES_OF_FREEDOM + 1.0) / (DEGREES_OF_FREEDOM + squares / scale)
        scale = max((ASSUMED_ROWS * assumed + share @ squares) / count, assumed)
        rows = share / (scale * data.variance)
        if iteration >= WIDE_ITERATIONS:
            size_squares = (shared**2 + variance)[:size_count] / size_variance
            size_share = (DEGREES_OF_FREEDOM + 1.0) / (DEGREES_OF_FREEDOM + size_squares)
            group_variance[:size_count] = size_variance / np.minimum(size_share, 1.0)
    return Weights(rows, _shared_variance(data.groups, group_variance, rows))


def information(data: FitRows, weights: Weights, jacobian: FloatArray) -> FloatArray:
    """Return the parameters' information matrix (p, p), with shared errors integrated out."""
    weighted = weights.rows[:, None] * jacobian
    sums = data.groups @ weighted
    matrix: FloatArray = jacobian.T @ weighted - sums.T @ (weights.shared_variance[:, None] * sums)
    return matrix


def score(
    data: FitRows, weights: Weights, jacobian: FloatArray, residuals: FloatArray
) -> FloatArray:
    """Return the derivative (p,) of -`misfit` / 2 with respect to the coordinates."""
    weighted = weights.rows * residuals
    shared = weights.shared_variance * (data.groups @ weighted)
    slope: FloatArray = (weighted - weights.rows * (shared @ data.groups)) @ jacobian
    return slope


def misfit(data: FitRows, weights: Weights, residuals: FloatArray) -> float:
    """Return the weighted sum of squares, with shared errors integrated out."""
    weighted = weights.rows * residuals
    return float(weighted @ residuals - weights.shared_variance @ (data.groups @ weighted) ** 2)


def _log_slopes(theta: FloatArray, features: Features, batch: FloatArray) -> FloatArray:
    """Return the terms (t, n) of a sum of parameters times features.

    The terms are the derivatives with respect to the logarithms of the parameters.
    """
    slopes = np.empty((len(features), len(batch)))
    for row, parameter, feature in zip(slopes, theta, features, strict=True):
        row[:] = parameter * feature
    return slopes


def _shared_variance(
    groups: FloatArray, group_variance: FloatArray, rows: FloatArray
) -> FloatArray:
    """Return the variance (g,) of the shared error of each group, given its rows."""
    variance: FloatArray = group_variance / (1.0 + group_variance * (groups @ rows))
    return variance


def _power_log(share: FloatArray, power: float) -> FloatArray:
    """Return ``share^power * log(share)``, 0 at 0."""
    positive = np.maximum(share, np.finfo(np.float64).tiny)
    value: FloatArray = positive**power * np.log(positive)
    return value


def _validate(observation: StepObservation) -> None:
    """Refuse an observation that can't have been measured.

    Raises:
        ValueError: a field is out of range; the message names the field.
    """
    for name, minimum in (
        ("instances", 1),
        ("devices", observation.instances),
        ("device_batch", 1),
        ("accumulation", 0),
    ):
        value = getattr(observation, name)
        if not value >= minimum:
            raise ValueError(f"{name}={value}: must be at least {minimum}")
    if not observation.steps > 0:
        raise ValueError(f"steps={observation.steps}: must be positive")
    step, sync = observation.step_seconds, observation.sync_seconds
    if not (isfinite(step) and step > 0):
        raise ValueError(f"step_seconds={step}: must be positive and finite")
    if not 0 <= sync < step:
        raise ValueError(f"sync_seconds={sync}: must be in [0, step_seconds={step})")
