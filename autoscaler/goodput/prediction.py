"""Predictions of a fitted model with their uncertainty, and their past errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp

import numpy as np
from numpy.typing import ArrayLike

from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.batch_search import Throughputs, batch_log_errors, throughputs
from autoscaler.goodput.draws import size_normals
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.likelihood import (
    CURVE_LOG_DEVIATION,
    ROW_LOG_DEVIATION,
    SIZE_LOG_DEVIATION,
    FitRows,
    measurements,
)
from autoscaler.goodput.throughput import FloatArray, Predictor


def goodput_draws(
    model: ThroughputModel,
    noise_examples: ArrayLike,
    bounds: BatchBounds,
    instances: ArrayLike,
    devices: ArrayLike,
) -> FloatArray:
    """Return the goodput at the best batch, (K, A) over draws and allocations.

    In useful examples per second: `goodput_table` of the model's draws, each with the measured or
    drawn error of its size. The arguments are those of `goodput_table`; the bounds are those for
    the model's kind of device.
    """
    return throughput_draws(model, bounds, instances, devices).goodput(noise_examples)


# Half-width of a normal's central 90 %, in standard deviations.
_CENTRAL_90 = 1.645


@dataclass(frozen=True, slots=True, eq=False)
class ThroughputDraws:
    """Inputs of `goodput_draws` without the noise scale; `errors` are factors of sizes, (K, A)."""

    known: Throughputs
    errors: FloatArray

    @property
    def nbytes(self) -> int:
        """Memory of the arrays, in bytes."""
        return self.known.nbytes + self.errors.nbytes

    def goodput(self, noise_examples: ArrayLike) -> FloatArray:
        """Return the goodput at the best batch, (K, A), as `goodput_draws`."""
        return self.known.goodput(noise_examples) * self.errors


def throughput_draws(
    model: ThroughputModel, bounds: BatchBounds, instances: ArrayLike, devices: ArrayLike
) -> ThroughputDraws:
    """Return the inputs of `goodput_draws` that stay fixed while the noise scale changes."""
    predictor, bounds = predictor_of(model.draws), bounds.on(model.device_kind)
    throughput_of_draws = throughputs(predictor, bounds, instances, devices, model.batch_errors)
    return ThroughputDraws(
        throughput_of_draws, np.exp(-size_log_errors(model, instances, devices))
    )


def size_log_errors(
    model: ThroughputModel, instances: ArrayLike, devices: ArrayLike
) -> FloatArray:
    """Return log(true / predicted step time) of K draws and A sizes: (K, A).

    The measured error for a measured size. Otherwise normal with mean 0 and deviation
    SIZE_LOG_DEVIATION, with the same draws for the same size.
    """
    draws = len(model.draws)
    measured_errors = {
        (error.instances, error.devices): np.array(error.log_errors) for error in model.size_errors
    }
    no_error = np.zeros(draws)
    sizes = np.stack([np.ravel(instances), np.ravel(devices)], axis=1).astype(np.int64)
    columns = _drawn_log_errors(draws, model.device_kind, sizes.tobytes()).copy()
    for row, size in enumerate(map(tuple, sizes.tolist())):
        if size in model.measured:
            columns[row] = measured_errors.get(size, no_error)
    return columns.T


@lru_cache(maxsize=1024)
def _drawn_log_errors(draws: int, device_kind: str, sizes: bytes) -> FloatArray:
    """Return drawn log errors (A, K) of A sizes, given as int64 pairs (instances, devices)."""
    instances_and_devices = np.frombuffer(sizes, dtype=np.int64).reshape(-1, 2).tolist()
    columns = [size_normals(draws, device_kind, *size) for size in instances_and_devices]
    return SIZE_LOG_DEVIATION * np.array(columns).reshape(-1, draws)


def log_errors(model: ThroughputModel, observations: Sequence[StepObservation]) -> FloatArray:
    """Return log(measured / predicted step time) of each observation: (n,).

    Predictions use the point, the mean error of a measured size, and the error of the device
    batch.

    Raises:
        ValueError: an observation is not possible; the message names the field.
    """
    point = predictor_of(model.point)
    return _log_errors(model, point, measurements(observations, point.formula))


def prediction_error(model: ThroughputModel, observations: Sequence[StepObservation]) -> float:
    """Return the root mean square of `log_errors`, weighted like rows of the fit.

    Only the latest era of each size counts, because a model describes no earlier one. 0 without
    observations; about ROW_LOG_DEVIATION for the observations that the model was fitted to. Fit
    again when it is clearly larger, or when a size was not measured.

    Raises:
        ValueError: an observation is not possible; the message names the field.
    """
    if not observations:
        return 0.0
    point = predictor_of(model.point)
    data = measurements(observations, point.formula)
    is_latest = data.is_latest @ data.groups[: len(data.sizes), : len(observations)]
    weights = is_latest / data.variance[: len(observations)]
    return float(np.sqrt(np.average(_log_errors(model, point, data) ** 2, weights=weights)))


@dataclass(frozen=True, slots=True)
class PredictedStep:
    """Predicted step time, with bounds of the central 90 % of the prediction."""

    seconds: float
    least_seconds: float
    most_seconds: float


def predicted_step(model: ThroughputModel, observation: StepObservation) -> PredictedStep:
    """Return the step time predicted for the configuration of an observation.

    The range covers the uncertainty of the parameters, the size and the device batch, and the
    error of a measurement.
    """
    size = observation.size
    batch = observation.device_batch
    seconds = predictor_of(model.draws).step_seconds(*size, batch, observation.accumulation)
    log_seconds = np.log(seconds).ravel() + size_log_errors(model, size[0], size[1])[:, 0]
    if model.batch_errors is not None:
        log_seconds = log_seconds + batch_log_errors(model.batch_errors, np.array([batch]))
    deviation = float(np.sqrt(log_seconds.var() + CURVE_LOG_DEVIATION**2 + ROW_LOG_DEVIATION**2))
    centre, half_width = float(log_seconds.mean()), _CENTRAL_90 * deviation
    return PredictedStep(exp(centre), exp(centre - half_width), exp(centre + half_width))


def _log_errors(model: ThroughputModel, point: Predictor, data: FitRows) -> FloatArray:
    instances, devices, batch, accumulation = data.places
    seconds = point.step_seconds(instances, devices, batch, accumulation)
    expected = np.log(seconds) + size_log_errors(model, instances, devices).mean(axis=0)
    if model.batch_errors is not None:
        expected = expected + batch_log_errors(model.batch_errors, batch)
    errors: FloatArray = data.log_seconds[: len(seconds)] - expected
    return errors
