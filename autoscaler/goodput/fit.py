"""Fit of a job's throughput model on one kind of device to measured step times.

Maximum a posteriori with a normal prior and a Student-t likelihood of log seconds. The mode is
found by Levenberg-Marquardt on reweighted least squares; the draws are from the Laplace
approximation at the mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import BatchErrors, SizeError, ThroughputModel
from autoscaler.goodput.coordinates import to_theta
from autoscaler.goodput.draws import DRAWS, normals, size_normals
from autoscaler.goodput.formulas import parameters_of
from autoscaler.goodput.likelihood import (
    CURVE_LOG_DEVIATION,
    FitRows,
    Weights,
    assumed_weights,
    information,
    linearise,
    log_predictions,
    measurements,
    misfit,
    robust_weights,
    score,
)
from autoscaler.goodput.prediction import log_errors
from autoscaler.goodput.prior import ThroughputPrior
from autoscaler.goodput.throughput import FloatArray, Predictor

ITERATIONS = 60
# Iterations stop below this expected gain of a step, in squared posterior standard deviations.
TOLERANCE = 1e-5
# A size slower than predicted by this log error, a factor of 2, is used after two reports only.
DOUBTED_LOG_ERROR = 0.7


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """The posterior's mode (p,), and the rows' weights and information (p, p) at the mode."""

    mode: FloatArray
    weights: Weights
    information: FloatArray


def fit(
    observations: Sequence[StepObservation],
    prior: ThroughputPrior,
    draws: int = DRAWS,
    seed: int = 0,
) -> ThroughputModel:
    """Return the model fitted to observations of the prior's kind of device.

    The result depends only on observations, prior and seed. Draws equal those of the prior in
    directions of the parameters without data. A size with a single report that is slower than
    predicted by DOUBTED_LOG_ERROR counts as unmeasured: a slow first step need not be a property
    of the size.

    Raises:
        ValueError: an observation is not possible or of another kind (the message names the
            field), or `draws` differs from the prior's number of inherited draws.
    """
    for observation in observations:
        if observation.device_kind != prior.device_kind:
            raise ValueError(
                f"device_kind={observation.device_kind}: the prior is for {prior.device_kind}; "
                "fit each kind separately"
            )
    doubted_sizes = _doubted_sizes(observations, prior, draws, seed)
    believed = [
        observation for observation in observations if observation.size not in doubted_sizes
    ]
    return _fitted(believed, prior, draws, seed)


def _fitted(
    observations: Sequence[StepObservation], prior: ThroughputPrior, draws: int, seed: int
) -> ThroughputModel:
    data = measurements(observations, prior.formula)
    posterior = _posterior(data, prior)
    point = Predictor(prior.formula, to_theta(posterior.mode))
    draw_predictor = Predictor(prior.formula, to_theta(_sample(posterior, prior, draws, seed)))
    return ThroughputModel(
        device_kind=prior.device_kind,
        point=parameters_of(point)[0],
        draws=parameters_of(draw_predictor),
        measured=frozenset(data.sizes),
        size_errors=_size_errors(data, posterior.weights, draw_predictor, prior.device_kind),
        batch_errors=_batch_errors(data, posterior.weights, point),
    )


def _doubted_sizes(
    observations: Sequence[StepObservation], prior: ThroughputPrior, draws: int, seed: int
) -> frozenset[tuple[int, int]]:
    """Return sizes with one report that are far slower than the other data predicts.

    Empty if there is no other data, neither here nor on another kind of device.
    """
    data = measurements(observations, prior.formula)
    groups = np.flatnonzero(data.is_latest & ~data.is_settled).tolist()
    unsettled = frozenset(data.sizes[group] for group in groups)
    rest = [observation for observation in observations if observation.size not in unsettled]
    if not unsettled or (not rest and prior.inherited is None):
        return frozenset()
    model = _fitted(rest, prior, draws, seed)
    return frozenset(
        observation.size
        for observation, log_error in zip(
            observations, log_errors(model, observations), strict=True
        )
        if log_error > DOUBTED_LOG_ERROR and observation.size in unsettled
    )


def _posterior(data: FitRows, prior: ThroughputPrior) -> Posterior:
    """Return the mode, searched under normal errors first and then under Student-t errors.

    With Student-t errors alone the search could stop where all data count as outliers.
    """
    close = _climb(data, prior, prior.mean, lambda residuals: assumed_weights(data))
    mode = _climb(data, prior, close, lambda residuals: robust_weights(data, residuals))
    residuals, jacobian = linearise(data, prior.formula, mode)
    weights = robust_weights(data, residuals)
    return Posterior(mode, weights, information(data, weights, jacobian))


def _climb(
    data: FitRows,
    prior: ThroughputPrior,
    mode: FloatArray,
    weigh: Callable[[FloatArray], Weights],
) -> FloatArray:
    """Return the nearest maximum, by Levenberg-Marquardt with weights renewed at each step.

    Damping follows the ratio of actual to expected gain (Nielsen 1999).
    """
    precision = np.linalg.inv(prior.covariance)
    damping = 1e-3
    residuals, jacobian = linearise(data, prior.formula, mode)
    for _ in range(ITERATIONS):
        weights = weigh(residuals)
        hessian = precision + information(data, weights, jacobian)
        gradient = score(data, weights, jacobian, residuals) - precision @ (mode - prior.mean)
        step = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), gradient)
        expected_gain = float(step @ (2.0 * gradient - hessian @ step))
        if expected_gain < TOLERANCE:
            break
        next_residuals, next_jacobian = linearise(data, prior.formula, mode + step)
        gain = misfit(data, weights, residuals) - misfit(data, weights, next_residuals)
        gain -= float(step @ precision @ (step + 2.0 * (mode - prior.mean)))
        if not gain > 0:
            damping *= 8.0
            continue
        mode, residuals, jacobian = mode + step, next_residuals, next_jacobian
        damping *= max(0.1, 1.0 - (2.0 * gain / expected_gain - 1.0) ** 3)
    return mode


def _sample(posterior: Posterior, prior: ThroughputPrior, draws: int, seed: int) -> FloatArray:
    """Return draws (draws, p) from the Laplace approximation, in coordinates.

    Each prior draw is shifted by the data (Matheron's rule). The result is exact for the normal at
    the mode, and draws stay paired with the inherited draws of another kind.
    """
    factors = prior.spread.shape[1]
    z = normals(draws, factors + len(prior.mean), prior.device_kind, seed)
    deviations = z[:, :factors] @ prior.spread.T
    if prior.inherited is not None:
        if len(prior.inherited) != draws:
            raise ValueError(
                f"draws={draws}: must equal the {len(prior.inherited)} inherited draws"
            )
        deviations = deviations + prior.inherited
    precision = np.linalg.inv(prior.covariance)
    covariance = np.linalg.inv(precision + posterior.information)
    values, vectors = np.linalg.eigh(posterior.information)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    shifts: FloatArray = (deviations @ precision + z[:, factors:] @ root) @ covariance
    return posterior.mode + shifts


def _batch_errors(data: FitRows, weights: Weights, point: Predictor) -> BatchErrors | None:
    """Return log errors of device batches beyond the parameters and the error of the size.

    Shrunk towards 0 by a normal prior with `CURVE_LOG_DEVIATION`. None without observations.
    """
    count = data.places.shape[1]
    if count == 0:
        return None
    rows = weights.rows[:count]
    residuals = data.log_seconds[:count] - log_predictions(data, point)[:count]
    size_rows = data.groups[: len(data.sizes), :count] * rows
    means = size_rows @ residuals / np.maximum(size_rows.sum(axis=1), 1e-12)
    deviations = residuals - means @ data.groups[: len(data.sizes), :count]
    batches, batch_of = np.unique(data.places[2], return_inverse=True)
    weight = np.bincount(batch_of, rows)
    errors = np.bincount(batch_of, rows * deviations) / (weight + CURVE_LOG_DEVIATION**-2)
    return BatchErrors(tuple(batches.astype(int).tolist()), tuple(errors.tolist()))


def _size_errors(
    data: FitRows, weights: Weights, draw_predictor: Predictor, device_kind: str
) -> tuple[SizeError, ...]:
    """Return the error of each size beyond the parameters of each draw, in its latest era."""
    residuals = data.log_seconds - log_predictions(data, draw_predictor)
    means = weights.shared_variance * ((weights.rows * residuals) @ data.groups.T)
    deviations = np.sqrt(weights.shared_variance)
    errors = []
    for index in np.flatnonzero(data.is_latest).tolist():
        instances, devices = data.sizes[index]
        z = size_normals(len(draw_predictor.theta), device_kind, instances, devices)
        sample = means[:, index] + deviations[index] * z
        errors.append(SizeError(instances, devices, tuple(sample.tolist())))
    return tuple(errors)
