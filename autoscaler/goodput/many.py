"""Goodput of many jobs at once, with the same formula on the same kind of device.

Equivalent to `goodput_draws` per job, in single precision. The share left with one instance less
uses the point only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.domain.goodput import BatchBounds, StepParameters
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.batch_search import BatchCandidates, batch_log_errors, candidates
from autoscaler.goodput.efficiency import efficiency
from autoscaler.goodput.formulas import formula_of, predictor_of
from autoscaler.goodput.prediction import size_log_errors
from autoscaler.goodput.throughput import (
    FloatArray,
    Formula,
    IntArray,
    Predictor,
    overlapped_seconds,
)

# Candidate batches per size. More of them gain nothing: goodput is flat between two neighbours.
_BATCHES = 12
# Jobs computed together: few calls of NumPy, with arrays that fit the processor's cache.
_BLOCK = 256


@dataclass(frozen=True, eq=False)
class Places:
    """S sizes on one kind of device."""

    device_kind: str
    instances: IntArray
    devices: IntArray

    @cached_property
    def index(self) -> dict[tuple[int, int], int]:
        """The index of each (instances, devices)."""
        sizes = zip(self.instances.tolist(), self.devices.tolist(), strict=True)
        return {size: index for index, size in enumerate(sizes)}

    def batches(self, bounds: BatchBounds) -> BatchCandidates:
        """Return candidate batches of each size, (S, G), evenly spaced in their logarithms."""
        return _few(bounds.on(self.device_kind), self.devices.tobytes())


@lru_cache(maxsize=4096)
def _few(bounds: BatchBounds, devices: bytes) -> BatchCandidates:
    all_candidates = candidates(bounds, np.frombuffer(devices, dtype=np.int64))
    log_totals = np.log(all_candidates.total)
    if log_totals.shape[1] <= _BATCHES:
        return all_candidates
    shares = np.linspace(0.0, 1.0, _BATCHES)
    wanted_logs = log_totals[:, :1] + (log_totals[:, -1:] - log_totals[:, :1]) * shares
    nearest = np.abs(log_totals[:, :, None] - wanted_logs[:, None]).argmin(axis=1)
    total, device, accumulation = (
        np.take_along_axis(array, nearest, axis=1)
        for array in (all_candidates.total, all_candidates.device, all_candidates.accumulation)
    )
    return BatchCandidates(total, device, accumulation, all_candidates.runs)


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Batch bounds of J jobs: `which` (J,) are indices into the distinct bounds in `every`."""

    every: Sequence[BatchBounds]
    which: IntArray

    def part(self, block: slice) -> Bounds:
        """Return the bounds of a slice of the jobs."""
        return Bounds(self.every, self.which[block])


@dataclass(frozen=True, slots=True, eq=False)
class DrawnModels:
    """J models with the same formula on the same kind of device, in K draws.

    `theta` is (J, K, p), `noise_examples` is (J, K).
    """

    models: Sequence[ThroughputModel]
    theta: FloatArray
    noise_examples: FloatArray
    bounds: Bounds

    def first(self, draws: int) -> DrawnModels:
        """Return the models with their first draws only."""
        return replace(
            self, theta=self.theta[:, :draws], noise_examples=self.noise_examples[:, :draws]
        )

    def part(self, block: slice) -> DrawnModels:
        """Return a slice of the models."""
        return DrawnModels(
            self.models[block],
            self.theta[block],
            self.noise_examples[block],
            self.bounds.part(block),
        )


def theta_of(models: Sequence[ThroughputModel], draws: int) -> FloatArray:
    """Return the parameters (J, K, p) of J models of one formula, in each of their K draws."""
    rows = list(chain.from_iterable(model.draws for model in models))
    return _predictor(rows, (len(models), draws)).theta


@dataclass(frozen=True, slots=True, eq=False)
class _JobBatches:
    """Candidate batches of J jobs: G batches for each of B bounds on each of S sizes, (G, B * S).

    The columns of a job start at its `first`, (J, 1), or (1, 1) if all jobs have the same bounds;
    `initial` has the same shape. `runs` is (B * S,).
    """

    total: IntArray
    device: IntArray
    accumulation: IntArray
    runs: NDArray[np.bool_]
    first: IntArray
    initial: FloatArray


def _batches(bounds: Bounds, places: Places) -> _JobBatches:
    present, which = np.unique(bounds.which, return_inverse=True)
    distinct = [bounds.every[index] for index in present.tolist()]
    candidates_of = [places.batches(bound) for bound in distinct]
    most_batches = max(choices.total.shape[1] for choices in candidates_of)
    columns_of = [
        np.minimum(np.arange(most_batches), choices.total.shape[1] - 1)
        for choices in candidates_of
    ]
    total, device, accumulation = (
        np.concatenate(
            [array[:, columns] for array, columns in zip(arrays, columns_of, strict=True)]
        ).T.copy()
        for arrays in (
            [choices.total for choices in candidates_of],
            [choices.device for choices in candidates_of],
            [choices.accumulation for choices in candidates_of],
        )
    )
    which = which[:, None] if len(distinct) > 1 else np.zeros((1, 1), dtype=np.int64)
    initial: Any = np.array([bound.initial for bound in distinct], dtype=np.float32)
    return _JobBatches(
        total=total,
        device=device,
        accumulation=accumulation,
        runs=np.concatenate([choices.runs[:, 0] for choices in candidates_of]),
        first=which * len(places.devices),
        initial=initial[which],
    )


def runs_at(bounds: Bounds, formula: Formula, places: Places) -> NDArray[np.bool_]:
    """Return whether each of J jobs can run at each size, (J, S), or (1, S) if all are alike."""
    batches = _batches(bounds, places)
    runs = batches.runs[batches.first + np.arange(len(places.devices))]
    can_run: NDArray[np.bool_] = runs & formula.runs(places.devices)
    return can_run


def one_less(
    models: Sequence[ThroughputModel],
    noise_examples: FloatArray,
    bounds: Bounds,
    places: Places,
) -> FloatArray:
    """Return the share of goodput left after the loss of one instance, (J, S).

    Instances of a gang are lost together. Uses the points of J models of one formula, with about
    the same examples per device; 0 for sizes of one instance or one gang.
    `noise_examples` are the medians, (J,).
    """
    shares = []
    for start in range(0, len(models), _BLOCK):
        block = slice(start, start + _BLOCK)
        block_bounds = bounds.part(block)
        shares.append(
            _one_less_of_block(models[block], noise_examples[block], block_bounds, places)
        )
    return np.concatenate(shares).astype(np.float32)


def _one_less_of_block(
    models: Sequence[ThroughputModel],
    noise_examples: FloatArray,
    bounds: Bounds,
    places: Places,
) -> FloatArray:
    batches = _batches(bounds, places)
    columns = batches.first + np.arange(len(places.devices))
    totals, device = batches.total[:, columns], batches.device[:, columns]
    point = _predictor([model.point for model in models], (len(models), 1))
    point = replace(point, is_aligned=True)
    seconds = point.step_seconds(
        places.instances, places.devices, device, batches.accumulation[:, columns]
    )
    batch_factors = _measured_batch_factors(models, np.broadcast_to(device, seconds.shape))
    if batch_factors is not None:
        seconds *= batch_factors
    noise = noise_examples[:, None].astype(seconds.dtype)
    seconds_per_useful_batch = seconds * (1.0 + noise / totals.astype(seconds.dtype))
    best = seconds_per_useful_batch.argmin(axis=0)[None]
    least_seconds = np.take_along_axis(seconds_per_useful_batch, best, axis=0)[0]
    runs = batches.runs[columns] & point.formula.runs(places.devices)
    goodput = np.where(runs, (noise + batches.initial) / least_seconds, 0.0)
    lost = point.formula.lost_together(places.instances, places.devices)
    devices_left = places.devices - lost * (places.devices // places.instances)
    devices = np.maximum(devices_left, 1)
    total, accumulation = (
        np.take_along_axis(array, best, axis=0)[0]
        for array in (totals, batches.accumulation[:, columns])
    )
    total = np.maximum(total * devices // places.devices, batches.initial.astype(np.int64))
    seconds = point.step_seconds(
        np.maximum(places.instances - lost, 1),
        devices,
        -(-total // (devices * (accumulation + 1))),
        accumulation,
    )
    goodput_left = total * efficiency(noise, batches.initial, total) / seconds
    runs = (devices_left > 0) & (goodput > 0) & point.formula.runs(devices_left)
    share: FloatArray = np.minimum(goodput_left / np.maximum(goodput, 1e-30), 1.0)
    return np.where(runs, share, 0.0)


def seconds_per_example(drawn: DrawnModels, places: Places, chosen: IntArray) -> FloatArray:
    """Return the seconds per useful example at the best batch, (J, K, C).

    For J jobs, K draws and C sizes.

    Args:
        drawn: J models on one kind of device.
        places: S sizes.
        chosen: ascending indices (J, C) of C sizes per job on which the job can run.
    """
    jobs, draws = drawn.noise_examples.shape
    per_example: Any = np.empty((jobs, draws, chosen.shape[1]), dtype=np.float32)
    unmeasured = replace(drawn.models[0], measured=frozenset())
    log_errors = size_log_errors(unmeasured, places.instances, places.devices)[:draws].T
    factors = np.exp(log_errors).astype(np.float32)
    for start in range(0, jobs, _BLOCK):
        block = slice(start, start + _BLOCK)
        seconds = _seconds_without_size_errors(drawn.part(block), places, chosen[block])
        seconds *= factors[chosen[block]].swapaxes(1, 2)
        per_example[block] = seconds
    job_rows, columns, measured_log_errors = _measured_log_errors(drawn, places, chosen)
    per_example[job_rows, :, columns] *= np.exp(
        measured_log_errors - log_errors[chosen[job_rows, columns]]
    )
    result: FloatArray = per_example
    return result


def _measured_log_errors(
    drawn: DrawnModels, places: Places, chosen: IntArray
) -> tuple[list[int], list[int], FloatArray]:
    """Return rows and columns in `chosen` of measured sizes, N of them, and log errors (N, K)."""
    jobs, columns, errors = [], [], []
    draws = drawn.noise_examples.shape[1]
    no_error = (0.0,) * draws
    for job, model in enumerate(drawn.models):
        if not model.measured:
            continue
        log_errors_of = {
            (size_error.instances, size_error.devices): size_error.log_errors
            for size_error in model.size_errors
        }
        for size in model.measured & places.index.keys():
            index = places.index[size]
            column = int(chosen[job].searchsorted(index))
            if column < chosen.shape[1] and chosen[job, column] == index:
                jobs.append(job)
                columns.append(column)
                errors.append(log_errors_of.get(size, no_error)[:draws])
    return jobs, columns, np.array(errors, dtype=np.float64).reshape(-1, draws)


def _seconds_without_size_errors(
    drawn: DrawnModels, places: Places, chosen: IntArray
) -> FloatArray:
    """Return the seconds per useful example, (J, K, C), without errors of sizes.

    Arrays are (K, J * C) inside, so that the inner loops of NumPy are long.
    """
    jobs, draws = drawn.noise_examples.shape
    sizes_per_job, size = chosen.shape[1], chosen.ravel()
    columns = np.repeat(drawn.theta.transpose(2, 1, 0), sizes_per_job, axis=-1)
    formula = formula_of(drawn.models[0].point)
    predictor = Predictor(formula, np.moveaxis(columns, 0, -1), is_aligned=True)
    noise = np.repeat(drawn.noise_examples.T.astype(columns.dtype), sizes_per_job, axis=-1)
    instances, devices = places.instances[size], places.devices[size]
    sync, gamma = predictor.sync_seconds(instances, devices), predictor.gamma(1)
    batches = _batches(drawn.bounds, places)
    batch_columns = (batches.first + chosen).ravel()
    batch_factors = _measured_batch_factors(
        drawn.models, batches.device[:, batches.first + chosen]
    )
    initial = np.broadcast_to(batches.initial, chosen.shape).ravel()
    least_seconds, share = None, np.empty_like(noise)
    for column, total in enumerate(batches.total):
        device, accumulation = (
            batches.device[column][batch_columns],
            batches.accumulation[column][batch_columns],
        )
        compute = predictor.compute_seconds(instances, devices, device)
        seconds = overlapped_seconds(compute, sync, gamma)
        if accumulation.any():
            compute *= accumulation.astype(compute.dtype)
            seconds += compute
        if batch_factors is not None:
            seconds *= batch_factors[column].ravel()
        np.multiply(noise, (1.0 / total[batch_columns]).astype(noise.dtype), out=share)
        share += 1.0
        seconds *= share
        least_seconds = (
            seconds
            if least_seconds is None
            else np.minimum(least_seconds, seconds, out=least_seconds)
        )
    assert least_seconds is not None
    least_seconds /= noise + initial
    return least_seconds.reshape(draws, jobs, sizes_per_job).swapaxes(0, 1)


def _predictor(rows: Sequence[StepParameters], shape: tuple[int, ...]) -> Predictor:
    predictor = predictor_of(rows)
    theta: Any = predictor.theta.astype(np.float32).reshape(*shape, -1)
    return replace(predictor, theta=theta)


def _measured_batch_factors(
    models: Sequence[ThroughputModel], device_batch: IntArray
) -> FloatArray | None:
    """Return the measured over the predicted times of J jobs at device batches, (G, J, ...).

    None if no device batch of any job was measured.
    """
    if not any(model.batch_errors and any(model.batch_errors.log_errors) for model in models):
        return None
    factors: Any = np.ones(device_batch.shape, dtype=np.float32)
    for job, model in enumerate(models):
        errors = model.batch_errors
        if errors is not None and any(errors.log_errors):
            factors[:, job] = np.exp(batch_log_errors(errors, device_batch[:, job]))
    result: FloatArray = factors
    return result
