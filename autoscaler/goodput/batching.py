"""Which batch to train at: the one of most goodput, by the fitted model and what was tried.

Changing the batch costs nothing, so a trainer finds out what the seven parameters can't say: how
long steps really take at other batches. It corrects the model by the step times it has measured
at its present membership, and now and then tries a batch far from those.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from statistics import fmean

import numpy as np

from autoscaler.domain.goodput import Batch, BatchBounds, NoiseScale, StepParameters
from autoscaler.goodput.batch import candidates
from autoscaler.goodput.draws import is_usable
from autoscaler.goodput.efficiency import efficiency
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.throughput import FloatArray

# (examples on each device in a micro-step, accumulation steps) -> seconds of a step.
StepTimes = Mapping[tuple[int, int], float]

_WORTH_CHANGING = 1.03
# What is hoped for of a batch, for each doubling (one at most) from those that were measured.
_HOPE_PER_DOUBLING = 0.15


def next_batch_total(
    current: int,
    bounds: BatchBounds,
    throughput: StepParameters | None,
    noise: NoiseScale | None,
    members: tuple[int, int],
    measured: StepTimes | None = None,
) -> int:
    """The total batch to go on with; `current`, if allowed, unless another promises more.

    Without a fitted model or a noise scale that is known there is nothing to decide by. A change
    must promise 3 % of goodput, so that noise in the estimates does not move it.

    Args:
        current: the total batch now.
        bounds: what batch the job may run at.
        throughput: the controller's fit for the kind of device at work.
        noise: what is known of the noise scale.
        members: instances, and devices over all of them.
        measured: step times at these members; None where the model alone decides.
    """
    current = within(bounds, current)
    if not bounds.adaptive or throughput is None or noise is None or not is_usable(noise):
        return current
    devices = members[1]
    if devices > bounds.maximum:
        return current
    total, _, seconds = _choices(bounds, throughput, members, current)
    goodput = total * efficiency(noise.examples, bounds.initial, total) / seconds
    if measured:
        known = tuple(measured.items())
        goodput = goodput * _promise(bounds, throughput, members, current, known)
    best = int(np.argmax(goodput))
    return int(total[best]) if goodput[best] > _WORTH_CHANGING * goodput[-1] else current


@lru_cache(maxsize=4096)
def _choices(
    bounds: BatchBounds, throughput: StepParameters, members: tuple[int, int], current: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Total batches to choose from, the current one last: their device batches and step times."""
    devices = members[1]
    choices = candidates(bounds, np.array([devices]))
    now = split_batch(current, devices, bounds.device_maximum)
    total = np.append(choices.total[0], current)
    device = np.append(choices.device[0], now.device)
    accumulation = np.append(choices.accumulation[0], now.accumulation)
    return total, device, predictor_of(throughput).step_seconds(*members, device, accumulation)


def batch_to_look_at(bounds: BatchBounds, devices: int, measured: StepTimes) -> int | None:
    """The largest batch, where only much smaller ones were measured; None where one was.

    A few steps of it, once on each kind of device, tell what it is worth when the noise scale has
    grown: a plan for the hours to come needs that before a trainer does.
    """
    if not bounds.adaptive or not measured:
        return None
    total = min(bounds.maximum, devices * bounds.device_maximum)
    largest = max(device for device, _ in measured)
    is_far = split_batch(total, devices, bounds.device_maximum).device >= 2 * largest
    return total if is_far else None


def within(bounds: BatchBounds, total: int) -> int:
    """The batch nearest to `total` that `bounds` allow."""
    largest = bounds.maximum if bounds.adaptive else bounds.initial
    return max(bounds.initial, min(total, largest))


def split_batch(total: int, devices: int, device_maximum: int) -> Batch:
    """`total` examples over `devices`, with as few accumulation steps as the maximum allows."""
    share = -(-total // devices)
    accumulation = -(-share // device_maximum) - 1
    return Batch(total=total, device=-(-share // (accumulation + 1)), accumulation=accumulation)


@lru_cache(maxsize=1024)
def _promise(
    bounds: BatchBounds,
    throughput: StepParameters,
    members: tuple[int, int],
    current: int,
    measured: tuple[tuple[tuple[int, int], float], ...],
) -> FloatArray:
    """What goodput at each of `_choices` is multiplied by: measured over predicted, and hope.

    Between measured device batches the error of the model is interpolated, beyond it is that of
    the nearest; several accumulations of one device batch share theirs.
    """
    _, device, _ = _choices(bounds, throughput, members, current)
    batch, accumulation = np.array([key for key, _ in measured]).T
    predicted = predictor_of(throughput).step_seconds(*members, batch, accumulation)
    errors = np.log([seconds for _, seconds in measured]) - np.log(predicted)
    of_batch: dict[int, list[float]] = {}
    for own, error_of_one in zip(batch.tolist(), errors.tolist(), strict=True):
        of_batch.setdefault(own, []).append(error_of_one)
    known = sorted(of_batch)
    doublings, at = np.log2(known), np.log2(device)
    error = np.interp(at, doublings, [fmean(of_batch[each]) for each in known])
    distance = np.abs(at[:, None] - doublings).min(axis=1)
    promise: FloatArray = np.exp(_HOPE_PER_DOUBLING * np.minimum(distance, 1.0) - error)
    return promise
