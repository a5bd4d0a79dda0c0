"""The batch of most goodput: for one allocation (the trainer), for many at once (the planner).

Both search the same candidates, so that the trainer runs at what the planner paid for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoscaler.domain.goodput import Batch, BatchBounds, ThroughputParameters
from autoscaler.goodput.efficiency import efficiency
from autoscaler.goodput.throughput import FloatArray, as_array, step_seconds

# Against every batch in turn this loses 0.03 % of goodput on average and 0.6 % in one of 100
# cases (3,000 random jobs whose bounds are up to a factor 500 apart).
GRID_POINTS = 24

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """A batch and what is expected of it.

    `goodput` is in useful examples a second, `throughput` in examples a second; `efficiency` is
    the first over the second.
    """

    batch: Batch
    goodput: float
    throughput: float
    efficiency: float

    @property
    def step_seconds(self) -> float:
        """Seconds of one step at this batch."""
        return self.batch.total / self.throughput


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Batches to choose from, each array (A, G): A allocations, G batches of each.

    Every one is within the bounds; `runs` (A, 1) is False where no batch is, and what stands in
    such a row means nothing.
    """

    total: IntArray
    device: IntArray
    accumulation: IntArray
    runs: NDArray[np.bool_]


def best_batch(
    parameters: ThroughputParameters,
    noise_examples: float,
    bounds: BatchBounds,
    instances: int,
    devices: int,
) -> BatchChoice:
    """The batch of most goodput on `devices` devices in all, over `instances` instances.

    A trainer that has not measured its noise scale passes 0 and stays at the initial batch.

    Raises:
        ValueError: there are more devices than examples in the largest batch allowed.
    """
    choices = candidates(bounds, np.array([devices]))
    if not choices.runs.all():
        largest = bounds.maximum if bounds.adaptive else bounds.initial
        raise ValueError(
            f"devices={devices}: a batch of {largest} needs fewer, or raise its maximum"
        )
    theta = as_array(parameters)
    seconds = step_seconds(theta, instances, devices, choices.device, choices.accumulation)[0]
    efficiencies = efficiency(noise_examples, bounds.initial, choices.total)[0]
    throughput = choices.total[0] / seconds
    best = int(np.argmax(throughput * efficiencies))
    return BatchChoice(
        batch=Batch(
            total=int(choices.total[0, best]),
            device=int(choices.device[0, best]),
            accumulation=int(choices.accumulation[0, best]),
        ),
        goodput=float(throughput[best] * efficiencies[best]),
        throughput=float(throughput[best]),
        efficiency=float(efficiencies[best]),
    )


def goodput_table(
    theta: FloatArray,
    noise_examples: ArrayLike,
    bounds: BatchBounds,
    instances: ArrayLike,
    devices: ArrayLike,
) -> FloatArray:
    """Goodput at the best batch, in useful examples a second, for K draws and A allocations.

    Args:
        theta: draws of the throughput parameters, (K, 7).
        noise_examples: draws of the noise scale, (K,), or one for all.
        bounds: what batch the job may run at.
        instances: instances of each allocation, (A,).
        devices: devices at work of each allocation over all its instances, (A,).

    Returns:
        (K, A), never NaN; 0 where an allocation has more devices than the batch has examples.
    """
    count, total = (np.asarray(value, dtype=np.int64) for value in (instances, devices))
    choices = candidates(bounds, total)
    noise = np.broadcast_to(np.asarray(noise_examples, dtype=np.float64), theta.shape[:1])
    seconds = step_seconds(
        theta, count[:, None], total[:, None], choices.device, choices.accumulation
    )
    useful = choices.total * efficiency(noise[:, None, None], bounds.initial, choices.total)
    best: FloatArray = (useful / seconds).max(axis=2)
    return np.where(choices.runs[:, 0], best, 0.0)


def candidates(bounds: BatchBounds, devices: IntArray) -> Candidates:
    """The batches to choose from on each number of `devices`, (A,).

    Where a batch does not split evenly, `device` is that of the devices with the most examples.
    """
    count = devices[:, None]
    maximum = bounds.maximum if bounds.adaptive else bounds.initial
    runs = (count >= 1) & (count <= maximum)
    count = np.clip(count, 1, maximum)
    total = _totals(np.maximum(bounds.initial, count), maximum, count, bounds.device_maximum)
    share = _ceil_divide(total, count)
    micro_steps = _ceil_divide(share, np.int64(bounds.device_maximum))
    return Candidates(total, _ceil_divide(share, micro_steps), micro_steps - 1, runs)


def _totals(least: IntArray, maximum: int, count: IntArray, device_maximum: int) -> IntArray:
    """Total batches worth a look, (A, G), within [least, maximum]; all arrays are (A, 1).

    A geometric grid, lowered to what fills every device alike: any number of examples in one
    micro-step, the most allowed in each of several. Then the least raised to that, and the
    maximum as it is.
    """
    if (least == maximum).all():
        return least
    full = count * device_maximum
    exponents = np.linspace(0.0, 1.0, GRID_POINTS)
    grid = np.floor(least * (maximum / least) ** exponents + 1e-9).astype(np.int64)
    unit = np.where(grid < full, count, full)
    lowered = grid // unit * unit
    raised = _ceil_divide(least, unit[:, :1]) * unit[:, :1]
    highest = np.full_like(least, maximum)
    grid = np.where(lowered >= least, lowered, grid)
    return np.concatenate([grid, np.minimum(raised, maximum), highest], axis=1)


def _ceil_divide(dividend: IntArray, divisor: IntArray | np.int64) -> IntArray:
    """The quotient of two positive integers, rounded up without passing through floats."""
    quotient: IntArray = -(-dividend // divisor)
    return quotient
