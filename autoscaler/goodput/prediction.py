"""What a fitted model predicts, with what it does not know, and how far off it was."""

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
from autoscaler.goodput.batch import Throughputs, batch_log_errors, throughputs
from autoscaler.goodput.draws import size_normals
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.likelihood import (
    CURVE_LOG_DEVIATION,
    ROW_LOG_DEVIATION,
    SIZE_LOG_DEVIATION,
    Measurements,
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
    """Goodput at the best batch, in useful examples a second: (K, A) over draws and allocations.

    `goodput_table` of the model's draws, each with the error of its size: as measured, or drawn.
    The arguments are those of `goodput_table`; the bounds count as they are on the model's kind.
    """
    return throughput_draws(model, bounds, instances, devices).goodput(noise_examples)


# Standard deviations of a normal on either side of its central 90 %.
_CENTRAL_90 = 1.645


@dataclass(frozen=True, slots=True, eq=False)
class ThroughputDraws:
    """All of `goodput_draws` but the noise scale: `errors` are factors of sizes, (K, A)."""

    known: Throughputs
    errors: FloatArray

    @property
    def nbytes(self) -> int:
        """What the numbers take."""
        return self.known.nbytes + self.errors.nbytes

    def goodput(self, noise_examples: ArrayLike) -> FloatArray:
        """As `goodput_draws`, (K, A)."""
        return self.known.goodput(noise_examples) * self.errors


def throughput_draws(
    model: ThroughputModel, bounds: BatchBounds, instances: ArrayLike, devices: ArrayLike
) -> ThroughputDraws:
    """What `goodput_draws` needs beside the noise scale, which moves while the model stays."""
    drawn, bounds = predictor_of(model.draws), bounds.on(model.device_kind)
    known = throughputs(drawn, bounds, instances, devices, model.batch_errors)
    return ThroughputDraws(known, np.exp(-size_log_errors(model, instances, devices)))


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
    columns = _drawn_log_errors(draws, model.device_kind, sizes.tobytes()).copy()
    for place, size in enumerate(map(tuple, sizes.tolist())):
        if size in model.measured:
            columns[place] = known.get(size, nothing)
    return columns.T


@lru_cache(maxsize=1024)
def _drawn_log_errors(draws: int, device_kind: str, sizes: bytes) -> FloatArray:
    """Of sizes that were not measured, (instances, devices) by (instances, devices): (A, K)."""
    pairs = np.frombuffer(sizes, dtype=np.int64).reshape(-1, 2).tolist()
    columns = [size_normals(draws, device_kind, *pair) for pair in pairs]
    return SIZE_LOG_DEVIATION * np.array(columns).reshape(-1, draws)


def log_errors(model: ThroughputModel, observations: Sequence[StepObservation]) -> FloatArray:
    """Logarithm of measured over predicted step time of each observation: (n,).

    Predicted is by the point, with the mean error of the size where that was measured, and that
    of the device batch.

    Raises:
        ValueError: an observation can't be; the message names the field.
    """
    point = predictor_of(model.point)
    return _log_errors(model, point, measurements(observations, point.formula))


def prediction_error(model: ThroughputModel, observations: Sequence[StepObservation]) -> float:
    """Return the root mean square of `log_errors`, weighted as rows of the fit are.

    Only the latest era of each size counts, because a model describes no earlier one. Without
    observations it is 0, for those that a model was fitted to about ROW_LOG_DEVIATION. Fit again
    when it is clearly more, or when a size is not among those measured.

    Raises:
        ValueError: an observation can't be; the message names the field.
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
    """Step time that a model predicts, with the central 90 % of the prediction."""

    seconds: float
    least_seconds: float
    most_seconds: float


def predicted_step(model: ThroughputModel, observation: StepObservation) -> PredictedStep:
    """Return the step time predicted for the configuration of an observation.

    The range has in it what is not known of the parameters and the size, what a single batch may
    be off, and the error of a measurement.
    """
    place = observation.instances, observation.devices
    batch = observation.device_batch
    seconds = predictor_of(model.draws).step_seconds(*place, batch, observation.accumulation)
    logs = np.log(seconds).ravel() + size_log_errors(model, place[0], place[1])[:, 0]
    if model.batch_errors is not None:
        logs = logs + batch_log_errors(model.batch_errors, np.array([batch]))
    deviation = float(np.sqrt(logs.var() + CURVE_LOG_DEVIATION**2 + ROW_LOG_DEVIATION**2))
    centre, reach = float(logs.mean()), _CENTRAL_90 * deviation
    return PredictedStep(exp(centre), exp(centre - reach), exp(centre + reach))


def _log_errors(model: ThroughputModel, point: Predictor, data: Measurements) -> FloatArray:
    instances, devices, batch, accumulation = data.places
    seconds = point.step_seconds(instances, devices, batch, accumulation)
    expected = np.log(seconds) + size_log_errors(model, instances, devices).mean(axis=0)
    if model.batch_errors is not None:
        expected = expected + batch_log_errors(model.batch_errors, batch)
    errors: FloatArray = data.log_seconds[: len(seconds)] - expected
    return errors
