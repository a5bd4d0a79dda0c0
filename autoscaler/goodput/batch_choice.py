"""Choice of the batch with the highest goodput, by the fitted model and measured step times.

Changing the batch costs nothing, so a trainer measures what seven parameters do not capture: step
times at other batches. It corrects the model by the step times measured at its present members,
and occasionally tries a batch far from the measured ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from statistics import fmean

import numpy as np

from autoscaler.domain.goodput import Batch, BatchBounds, NoiseScale, StepParameters
from autoscaler.goodput.batch_search import candidates
from autoscaler.goodput.draws import is_usable
from autoscaler.goodput.efficiency import efficiency
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.throughput import FloatArray

# (examples on each device in a micro-step, accumulation steps) -> seconds of a step.
StepTimes = Mapping[tuple[int, int], float]

_LEAST_GAIN_TO_CHANGE = 1.03
# Log of the exploration bonus per doubling (one at most) from the nearest measured batch.
_EXPLORATION_BONUS_PER_DOUBLING = 0.15


def next_batch_total(
    current: int,
    bounds: BatchBounds,
    throughput: StepParameters | None,
    noise: NoiseScale | None,
    members: tuple[int, int],
    measured: StepTimes | None = None,
) -> int:
    """Return the total batch for the next steps: `current` unless another one is clearly better.

    Without a fitted model or a usable noise scale `current` stays. A change must gain more than 3
    % of goodput, so that noise in the estimates does not cause changes. `current` is first brought
    within the bounds.

    Args:
        current: the present total batch.
        bounds: the batches that the job may use.
        throughput: the controller's fit for the kind of device in use; None without one.
        noise: the measured noise scale; None if unknown.
        members: the number of instances, and of devices over all of them.
        measured: step times measured with these members; None to use the model alone.
    """
    current = within(bounds, current)
    if not bounds.adaptive or throughput is None or noise is None or not is_usable(noise):
        return current
    devices = members[1]
    if devices > bounds.maximum:
        return current
    total, _, seconds = _candidate_batches(bounds, throughput, members, current)
    goodput = total * efficiency(noise.examples, bounds.initial, total) / seconds
    if measured:
        measurements = tuple(measured.items())
        goodput = goodput * _goodput_corrections(
            bounds, throughput, members, current, measurements
        )
    best = int(np.argmax(goodput))
    return int(total[best]) if goodput[best] > _LEAST_GAIN_TO_CHANGE * goodput[-1] else current


@lru_cache(maxsize=4096)
def _candidate_batches(
    bounds: BatchBounds, throughput: StepParameters, members: tuple[int, int], current: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return total batches, device batches and step seconds of the candidates, `current` last."""
    devices = members[1]
    choices = candidates(bounds, np.array([devices]))
    current_batch = split_batch(current, devices, bounds.device_maximum)
    total = np.append(choices.total[0], current)
    device = np.append(choices.device[0], current_batch.device)
    accumulation = np.append(choices.accumulation[0], current_batch.accumulation)
    return total, device, predictor_of(throughput).step_seconds(*members, device, accumulation)


def batch_to_look_at(bounds: BatchBounds, devices: int, measured: StepTimes) -> int | None:
    """Return the largest batch if only much smaller device batches were measured, else None.

    A trainer runs a few steps at this batch once per kind of device. Plans for the next hours need
    that measurement when the noise scale has grown.
    """
    if not bounds.adaptive or not measured:
        return None
    total = min(bounds.maximum, devices * bounds.device_maximum)
    largest_measured = max(device for device, _ in measured)
    is_far = split_batch(total, devices, bounds.device_maximum).device >= 2 * largest_measured
    return total if is_far else None


def within(bounds: BatchBounds, total: int) -> int:
    """Return the allowed batch nearest to `total`."""
    largest = bounds.maximum if bounds.adaptive else bounds.initial
    return max(bounds.initial, min(total, largest))


def split_batch(total: int, devices: int, device_maximum: int) -> Batch:
    """Split `total` examples over the devices with the fewest accumulation steps."""
    share = -(-total // devices)
    accumulation = -(-share // device_maximum) - 1
    return Batch(total=total, device=-(-share // (accumulation + 1)), accumulation=accumulation)


@lru_cache(maxsize=1024)
def _goodput_corrections(
    bounds: BatchBounds,
    throughput: StepParameters,
    members: tuple[int, int],
    current: int,
    measured: tuple[tuple[tuple[int, int], float], ...],
) -> FloatArray:
    """Return factors (G,) for the goodput of each candidate batch.

    A factor is the predicted over the measured step time, times the exploration bonus. Log errors
    of the model are interpolated between measured device batches; beyond them the nearest one's
    holds. Accumulations of one device batch share their mean error.
    """
    _, device, _ = _candidate_batches(bounds, throughput, members, current)
    batch, accumulation = np.array([key for key, _ in measured]).T
    predicted = predictor_of(throughput).step_seconds(*members, batch, accumulation)
    errors = np.log([seconds for _, seconds in measured]) - np.log(predicted)
    errors_of: dict[int, list[float]] = {}
    for device_batch, log_error in zip(batch.tolist(), errors.tolist(), strict=True):
        errors_of.setdefault(device_batch, []).append(log_error)
    measured_batches = sorted(errors_of)
    doublings, candidate_doublings = np.log2(measured_batches), np.log2(device)
    error = np.interp(
        candidate_doublings,
        doublings,
        [fmean(errors_of[measured_batch]) for measured_batch in measured_batches],
    )
    distance = np.abs(candidate_doublings[:, None] - doublings).min(axis=1)
    corrections: FloatArray = np.exp(
        _EXPLORATION_BONUS_PER_DOUBLING * np.minimum(distance, 1.0) - error
    )
    return corrections
