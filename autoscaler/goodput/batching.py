"""Which batch to train at: the one of most goodput, by the model the controller fitted."""

from __future__ import annotations

from autoscaler.domain.goodput import Batch, BatchBounds, NoiseScale, ThroughputParameters
from autoscaler.goodput.batch import best_batch
from autoscaler.goodput.draws import is_usable
from autoscaler.goodput.efficiency import efficiency
from autoscaler.goodput.throughput import as_array, step_seconds

_WORTH_CHANGING = 1.03


def next_batch_total(
    current: int,
    bounds: BatchBounds,
    throughput: ThroughputParameters | None,
    noise: NoiseScale | None,
    instances: int,
    devices: int,
) -> int:
    """The total batch to go on with; `current`, if allowed, unless another is clearly better.

    Without a fitted model or a noise scale that is known there is nothing to decide by. A change
    must be worth 3 % of goodput, so that noise in the estimates does not move it.
    """
    current = within(bounds, current)
    if not bounds.adaptive or throughput is None or noise is None or not is_usable(noise):
        return current
    if devices > bounds.maximum:
        return current
    best = best_batch(throughput, noise.examples, bounds, instances, devices)
    split = split_batch(current, devices, bounds.device_maximum)
    seconds = step_seconds(
        as_array(throughput), instances, devices, split.device, split.accumulation
    )
    now = current / float(seconds) * float(efficiency(noise.examples, bounds.initial, current))
    return best.batch.total if best.goodput > _WORTH_CHANGING * now else current


def within(bounds: BatchBounds, total: int) -> int:
    """The batch nearest to `total` that `bounds` allow."""
    largest = bounds.maximum if bounds.adaptive else bounds.initial
    return max(bounds.initial, min(total, largest))


def split_batch(total: int, devices: int, device_maximum: int) -> Batch:
    """`total` examples over `devices`, with as few accumulation steps as the maximum allows."""
    share = -(-total // devices)
    accumulation = -(-share // device_maximum) - 1
    return Batch(total=total, device=-(-share // (accumulation + 1)), accumulation=accumulation)
