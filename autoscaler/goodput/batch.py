"""The batch of most goodput: for one allocation (the trainer), for many at once (the planner).

Both search the same candidates, so that the trainer runs at what the planner paid for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoscaler.domain.goodput import Batch, BatchBounds, StepParameters
from autoscaler.domain.snapshot import BatchErrors
from autoscaler.goodput.efficiency import efficiency
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.throughput import FloatArray, Predictor

# From so many examples of a device on, 8 numbers of them to a doubling are worth a look. Against
# every batch in turn this loses 0.1 % of goodput on average, 3 % in one of 100 cases and 11 % at
# most (5,300 random jobs without sawteeth), where 3 examples of a device would be the best.
_DENSE_FROM = 32
# Allocations of about as many devices that are looked at together: what that takes is to stay in
# the processor's cache.
_BLOCK = 16

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


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """B of the allocations, `which` says those: their batches, (B, G), examples a second at each,
    (K, B, G), and whether any runs, (B,)."""

    which: IntArray
    total: IntArray
    throughput: FloatArray
    runs: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Throughputs:
    """K draws of the throughput of A allocations at every batch worth a look."""

    initial_batch: int
    draws: int
    allocations: int
    blocks: tuple[_Block, ...]

    @property
    def nbytes(self) -> int:
        """What the numbers take."""
        return sum(block.throughput.nbytes for block in self.blocks)

    def goodput(self, noise_examples: ArrayLike) -> FloatArray:
        """Goodput at the best batch as `goodput_table` has it, (..., K, A)."""
        noise = np.asarray(noise_examples, dtype=np.float64)
        noise = np.broadcast_to(noise, (*noise.shape[:-1], self.draws))
        table = np.empty((*noise.shape, self.allocations))
        for block in self.blocks:
            useful = efficiency(noise[..., None, None], self.initial_batch, block.total)
            best = (block.throughput * useful).max(axis=-1)
            table[..., block.which] = np.where(block.runs, best, 0.0)
        return table


def best_batch(
    parameters: StepParameters,
    noise_examples: float,
    bounds: BatchBounds,
    instances: int,
    devices: int,
) -> BatchChoice:
    """The batch of most goodput on `devices` devices in all, over `instances` instances.

    A trainer that has not measured its noise scale passes 0 and stays at the initial batch.

    Raises:
        ValueError: there are more devices than examples in the largest batch allowed, or no
            whole replicas on them.
    """
    choices = candidates(bounds, np.array([devices]))
    if not choices.runs.all():
        largest = bounds.maximum if bounds.adaptive else bounds.initial
        raise ValueError(
            f"devices={devices}: a batch of {largest} needs fewer, or raise its maximum"
        )
    predictor = predictor_of(parameters)
    if not predictor.formula.runs(np.array(devices)):
        raise ValueError(f"devices={devices}: do not divide into whole replicas")
    seconds = predictor.step_seconds(
        instances, devices, choices.device[0], choices.accumulation[0]
    )
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
    predictor: Predictor,
    noise_examples: ArrayLike,
    bounds: BatchBounds,
    instances: ArrayLike,
    devices: ArrayLike,
    batch_errors: BatchErrors | None = None,
) -> FloatArray:
    """Goodput at the best batch, in useful examples a second, for K draws and A allocations.

    Args:
        predictor: of K draws of the throughput parameters.
        noise_examples: draws of the noise scale, (..., K), or one for all.
        bounds: what batch the job may run at.
        instances: instances of each allocation, (A,).
        devices: devices at work of each allocation over all its instances, (A,).
        batch_errors: what was measured at device batches beyond the parameters.

    Returns:
        (..., K, A), never NaN; 0 where an allocation has more devices than the batch has
        examples, or devices that no whole replicas can be made of.
    """
    known = throughputs(predictor, bounds, instances, devices, batch_errors)
    return known.goodput(noise_examples)


def throughputs(
    predictor: Predictor,
    bounds: BatchBounds,
    instances: ArrayLike,
    devices: ArrayLike,
    batch_errors: BatchErrors | None = None,
) -> Throughputs:
    """What of `goodput_table` does not depend on the noise scale; the arguments are the same."""
    count, total = (np.asarray(value, dtype=np.int64) for value in (instances, devices))
    order = np.argsort(total, kind="stable")
    blocks = []
    for start in range(0, len(total), _BLOCK):
        block = order[start : start + _BLOCK]
        choices = candidates(bounds, total[block])
        seconds = predictor.step_seconds(
            count[block, None], total[block, None], choices.device, choices.accumulation
        )
        throughput = choices.total / seconds
        if batch_errors is not None:
            throughput = throughput * np.exp(-batch_log_errors(batch_errors, choices.device))
        runs = choices.runs[:, 0] & predictor.formula.runs(total[block])
        blocks.append(_Block(block, choices.total, throughput, runs))
    return Throughputs(bounds.initial, len(predictor.theta), len(total), tuple(blocks))


def batch_log_errors(errors: BatchErrors, device_batch: ArrayLike) -> FloatArray:
    """The errors at any device batches: between those measured, or of the nearest."""
    found: FloatArray = np.interp(
        np.log2(device_batch), np.log2(errors.device_batches), errors.log_errors
    )
    return found


def candidates(bounds: BatchBounds, devices: IntArray) -> Candidates:
    """The batches to choose from on each number of `devices`, (A,).

    Where a batch does not split evenly, `device` is that of the devices with the most examples.
    """
    return _candidates(bounds, np.asarray(devices, dtype=np.int64).tobytes())


@lru_cache(maxsize=1024)
def _candidates(bounds: BatchBounds, devices: bytes) -> Candidates:
    count = np.frombuffer(devices, dtype=np.int64)[:, None]
    maximum = bounds.maximum if bounds.adaptive else bounds.initial
    runs = (count >= 1) & (count <= maximum)
    count = np.clip(count, 1, maximum)
    total = _totals(np.maximum(bounds.initial, count), maximum, count, bounds.device_maximum)
    share = _ceil_divide(total, count)
    micro_steps = _ceil_divide(share, np.int64(bounds.device_maximum))
    return Candidates(total, _ceil_divide(share, micro_steps), micro_steps - 1, runs)


def _totals(least: IntArray, maximum: int, count: IntArray, device_maximum: int) -> IntArray:
    """Total batches worth a look, (A, G), within [least, maximum]; all arrays are (A, 1).

    Those that fill every device alike with a round number of examples; the least one raised to
    what does, and the maximum as it is.
    """
    if (least == maximum).all():
        return least
    unit = count * _ceil_divide(least, count * device_maximum)
    raised = np.minimum(_ceil_divide(least, unit) * unit, maximum)
    totals = np.clip(count * _device_examples(device_maximum, maximum), raised, maximum)
    differs = (totals[:, 1:] != totals[:, :-1]).any(axis=0)
    distinct: IntArray = totals[:, np.concatenate([[True], differs])]
    return distinct


@lru_cache(maxsize=256)
def _device_examples(device_maximum: int, maximum: int) -> IntArray:
    """Examples of one device in a step worth a look, (G,), the last of them the maximum.

    In one micro-step powers of two, and from `_DENSE_FROM` on 8 to each doubling: kernels are
    fastest there, and far slower at odd numbers of few examples (measured: yolov3 on an A100
    takes 0.50 s for 8, 0.88 s for 11 and 0.89 s for 16). In several, full micro-steps.
    """
    few = 2 ** np.arange(int(np.log2(_DENSE_FROM)))
    octaves = np.arange(max(int(np.log2(max(device_maximum, 1))) + 1, 1))
    eighths = _DENSE_FROM * 2 ** octaves[:, None] * np.arange(8, 16) // 8
    one = np.concatenate([few, eighths.ravel()])
    steps = np.unique(np.geomspace(1, max(maximum / device_maximum, 1), 24).astype(np.int64))
    examples = np.concatenate([one[one < device_maximum], device_maximum * steps, [maximum]])
    found: IntArray = np.unique(examples.astype(np.int64))
    found.setflags(write=False)
    return found


def _ceil_divide(dividend: IntArray, divisor: IntArray | np.int64) -> IntArray:
    """The quotient of two positive integers, rounded up without passing through floats."""
    quotient: IntArray = -(-dividend // divisor)
    return quotient
