"""What a fitted model predicts, with what it does not know, and how far off it was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.batch import batch_log_errors, goodput_table
from autoscaler.goodput.draws import size_normals
from autoscaler.goodput.likelihood import SIZE_LOG_DEVIATION, Measurements, measurements
from autoscaler.goodput.throughput import FloatArray, as_array, step_seconds


def goodput_draws(
    model: ThroughputModel,
    noise_examples: ArrayLike,
    bounds: BatchBounds,
    instances: ArrayLike,
    devices: ArrayLike,
) -> FloatArray:
    """Goodput at the best batch, in useful examples a second: (K, A) over draws and allocations.

    `goodput_table` of the model's draws, each with the error of its size: as measured, or drawn.
    The arguments are those of `goodput_table`; the bounds count as they are on the model's kind.
    """
    theta, bounds = as_array(model.draws), bounds.on(model.device_kind)
    table = goodput_table(theta, noise_examples, bounds, instances, devices, model.batch_errors)
    return table * np.exp(-size_log_errors(model, instances, devices))


def size_log_errors(
    model: ThroughputModel, instances: ArrayLike, devices: ArrayLike
) -> FloatArray:
    """Logarithm of true over predicted step time, of K draws and A sizes: (K, A).

    As measured where the size was; elsewhere normal with SIZE_LOG_DEVIATION and mean 0, always
    the same for the same size.
    """
    draws = len(model.draws)
    known = {(e.instances, e.devices): np.array(e.log_errors) for e in model.size_errors}
    nothing = np.zeros(draws)
    sizes = np.stack([np.ravel(instances), np.ravel(devices)], axis=1).astype(np.int64)
    columns = []
    for size in map(tuple, sizes.tolist()):
        if size not in model.measured:
            columns.append(SIZE_LOG_DEVIATION * size_normals(draws, model.device_kind, *size))
        else:
            columns.append(known.get(size, nothing))
    return np.array(columns).reshape(-1, draws).T


def log_errors(model: ThroughputModel, observations: Sequence[StepObservation]) -> FloatArray:
    """Logarithm of measured over predicted step time of each observation: (n,).

    Predicted is by the point, with the mean error of the size where that was measured, and that
    of the device batch.

    Raises:
        ValueError: an observation can't be; the message names the field.
    """
    return _log_errors(model, measurements(observations))


def prediction_error(model: ThroughputModel, observations: Sequence[StepObservation]) -> float:
    """Root mean square of `log_errors`, weighted as rows of the fit are; 0 without observations.

    Of what a model was fitted to it is about ROW_LOG_DEVIATION. Fit again when it is clearly
    more, or when a size is not among those measured.

    Raises:
        ValueError: an observation can't be; the message names the field.
    """
    if not observations:
        return 0.0
    data = measurements(observations)
    weights = 1.0 / data.variance[: len(observations)]
    return float(np.sqrt(np.average(_log_errors(model, data) ** 2, weights=weights)))


def _log_errors(model: ThroughputModel, data: Measurements) -> FloatArray:
    instances, devices, batch, accumulation = data.places
    formula = step_seconds(as_array(model.point), instances, devices, batch, accumulation)
    expected = np.log(formula) + size_log_errors(model, instances, devices).mean(axis=0)
    if model.batch_errors is not None:
        expected = expected + batch_log_errors(model.batch_errors, batch)
    errors: FloatArray = data.log_seconds[: len(formula)] - expected
    return errors
