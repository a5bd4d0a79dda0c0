"""The throughput model of one job on one kind of device, from what was measured there.

Maximum a posteriori: a normal prior, and a Student-t likelihood of log seconds. Levenberg-
Marquardt on reweighted least squares finds it; the draws are of the Laplace approximation there.
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
    Measurements,
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
# Of what the next step would gain, in squared standard deviations of the posterior.
TOLERANCE = 1e-5
# A size that is slower than predicted by this log error, a factor of 2, takes two reports.
DOUBTED_LOG_ERROR = 0.7


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """The maximum `mode` (p,), and the weights and the information (p, p) of the data there."""

    mode: FloatArray
    weights: Weights
    information: FloatArray


def fit(
    observations: Sequence[StepObservation],
    prior: ThroughputPrior,
    draws: int = DRAWS,
    seed: int = 0,
) -> ThroughputModel:
    """Return the model of the observations, all of which are of the prior's kind of device.

    The same observations, prior and seed give the same model. Without observations the draws are
    the prior's; along a direction of the parameters in which nothing was measured they stay it.
    A size of one report that is slower by DOUBTED_LOG_ERROR than all else says counts as not
    measured yet: a slow first step need not be a property of the size.

    Raises:
        ValueError: an observation can't be or is of another kind (the message names the field),
            or `draws` is not the number that the prior inherits.
    """
    for observation in observations:
        if observation.device_kind != prior.device_kind:
            raise ValueError(
                f"device_kind={observation.device_kind}: the prior is of {prior.device_kind}, "
                "fit each kind by itself"
            )
    doubted = _doubted_sizes(observations, prior, draws, seed)
    believed = [o for o in observations if (o.instances, o.devices) not in doubted]
    return _fitted(believed, prior, draws, seed)


def _fitted(
    observations: Sequence[StepObservation], prior: ThroughputPrior, draws: int, seed: int
) -> ThroughputModel:
    data = measurements(observations, prior.formula)
    posterior = _posterior(data, prior)
    point = Predictor(prior.formula, to_theta(posterior.mode))
    drawn = Predictor(prior.formula, to_theta(_sample(posterior, prior, draws, seed)))
    return ThroughputModel(
        device_kind=prior.device_kind,
        point=parameters_of(point)[0],
        draws=parameters_of(drawn),
        measured=frozenset(data.sizes),
        size_errors=_size_errors(data, posterior.weights, drawn, prior.device_kind),
        batch_errors=_batch_errors(data, posterior.weights, point),
    )


def _doubted_sizes(
    observations: Sequence[StepObservation], prior: ThroughputPrior, draws: int, seed: int
) -> frozenset[tuple[int, int]]:
    """Return the sizes of one report that are far slower than all else says.

    Where nothing else was measured, neither here nor on another kind of device, there is none.
    """
    data = measurements(observations, prior.formula)
    groups = np.flatnonzero(data.is_latest & ~data.is_settled).tolist()
    unsettled = frozenset(data.sizes[group] for group in groups)
    rest = [o for o in observations if (o.instances, o.devices) not in unsettled]
    if not unsettled or (not rest and prior.inherited is None):
        return frozenset()
    model = _fitted(rest, prior, draws, seed)
    return frozenset(
        (observation.instances, observation.devices)
        for observation, log_error in zip(
            observations, log_errors(model, observations), strict=True
        )
        if log_error > DOUBTED_LOG_ERROR
        and (observation.instances, observation.devices) in unsettled
    )


def _posterior(data: Measurements, prior: ThroughputPrior) -> Posterior:
    """The mode, first under normal errors and from there under Student-t ones.

    The Student-t alone could rest where it takes all that was measured for outliers of the prior.
    """
    close = _climb(data, prior, prior.mean, lambda residuals: assumed_weights(data))
    mode = _climb(data, prior, close, lambda residuals: robust_weights(data, residuals))
    residuals, jacobian = linearise(data, prior.formula, mode)
    weights = robust_weights(data, residuals)
    return Posterior(mode, weights, information(data, weights, jacobian))


def _climb(
    data: Measurements,
    prior: ThroughputPrior,
    at: FloatArray,
    weigh: Callable[[FloatArray], Weights],
) -> FloatArray:
    """Levenberg-Marquardt to the nearest maximum, with weights renewed at every step.

    Damping follows how well the last step kept its promise (Nielsen 1999).
    """
    precision = np.linalg.inv(prior.covariance)
    damping = 1e-3
    residuals, jacobian = linearise(data, prior.formula, at)
    for _ in range(ITERATIONS):
        weights = weigh(residuals)
        hessian = precision + information(data, weights, jacobian)
        uphill = score(data, weights, jacobian, residuals) - precision @ (at - prior.mean)
        step = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), uphill)
        expected = float(step @ (2.0 * uphill - hessian @ step))
        if expected < TOLERANCE:
            break
        tried_residuals, tried_jacobian = linearise(data, prior.formula, at + step)
        gained = misfit(data, weights, residuals) - misfit(data, weights, tried_residuals)
        gained -= float(step @ precision @ (step + 2.0 * (at - prior.mean)))
        if not gained > 0:
            damping *= 8.0
            continue
        at, residuals, jacobian = at + step, tried_residuals, tried_jacobian
        damping *= max(0.1, 1.0 - (2.0 * gained / expected - 1.0) ** 3)
    return at


def _sample(posterior: Posterior, prior: ThroughputPrior, draws: int, seed: int) -> FloatArray:
    """Draws (draws, p) of the Laplace approximation, in coordinates.

    Each prior draw is moved by what the data say (Matheron's rule): exact for the normal at the
    mode, and a draw stays together with the draw of another kind that it inherits from.
    """
    own = prior.spread.shape[1]
    z = normals(draws, own + len(prior.mean), prior.device_kind, seed)
    deviations = z[:, :own] @ prior.spread.T
    if prior.inherited is not None:
        if len(prior.inherited) != draws:
            raise ValueError(f"draws={draws}: must be the {len(prior.inherited)} inherited")
        deviations = deviations + prior.inherited
    precision = np.linalg.inv(prior.covariance)
    covariance = np.linalg.inv(precision + posterior.information)
    values, vectors = np.linalg.eigh(posterior.information)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    moved: FloatArray = (deviations @ precision + z[:, own:] @ root) @ covariance
    return posterior.mode + moved


def _batch_errors(data: Measurements, weights: Weights, point: Predictor) -> BatchErrors | None:
    """What step times of each device batch say beyond the parameters and the error of the size.

    Shrunk towards 0 as a normal with `CURVE_LOG_DEVIATION` would be.
    """
    count = data.places.shape[1]
    if count == 0:
        return None
    rows = weights.rows[:count]
    residuals = data.log_seconds[:count] - log_predictions(data, point)[:count]
    of_size = data.groups[: len(data.sizes), :count] * rows
    means = of_size @ residuals / np.maximum(of_size.sum(axis=1), 1e-12)
    own = residuals - means @ data.groups[: len(data.sizes), :count]
    batches, batch_of = np.unique(data.places[2], return_inverse=True)
    weight = np.bincount(batch_of, rows)
    errors = np.bincount(batch_of, rows * own) / (weight + CURVE_LOG_DEVIATION**-2)
    return BatchErrors(tuple(batches.astype(int).tolist()), tuple(errors.tolist()))


def _size_errors(
    data: Measurements, weights: Weights, drawn: Predictor, device_kind: str
) -> tuple[SizeError, ...]:
    """Return the error of each size beyond the parameters of each draw, in its latest era."""
    residuals = data.log_seconds - log_predictions(data, drawn)
    means = weights.shared_variance * ((weights.rows * residuals) @ data.groups.T)
    deviations = np.sqrt(weights.shared_variance)
    errors = []
    for index in np.flatnonzero(data.is_latest).tolist():
        instances, devices = data.sizes[index]
        z = size_normals(len(drawn.theta), device_kind, instances, devices)
        sample = means[:, index] + deviations[index] * z
        errors.append(SizeError(instances, devices, tuple(sample.tolist())))
    return tuple(errors)
