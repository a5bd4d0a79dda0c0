"""Goodput of many jobs at once, of one formula and on one kind of device.

As `goodput_draws` job by job, but in single precision, and of one instance less only by the point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.domain.goodput import BatchBounds, StepParameters
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.batch import Candidates, batch_log_errors, candidates
from autoscaler.goodput.efficiency import efficiency
from autoscaler.goodput.formulas import formula_of, predictor_of
from autoscaler.goodput.prediction import size_log_errors
from autoscaler.goodput.throughput import FloatArray, Predictor, overlapped_seconds

IntArray = NDArray[np.int64]

# Batches that are looked at, of those worth a look: between two of them goodput is flat.
_BATCHES = 12
# Jobs that are looked at together: what that takes is to stay in the processor's cache.
_BLOCK = 64


@dataclass(frozen=True, eq=False)
class Places:
    """S sizes on one kind of device, and what batch is allowed there."""

    device_kind: str
    instances: IntArray
    devices: IntArray
    bounds: BatchBounds

    @cached_property
    def batches(self) -> Candidates:
        """Some of those worth a look, (S, G): evenly spaced in their logarithms."""
        every = candidates(self.bounds.on(self.device_kind), self.devices)
        rows = np.log(every.total)
        if rows.shape[1] <= _BATCHES:
            return every
        share = np.linspace(0.0, 1.0, _BATCHES)
        wanted = rows[:, :1] + (rows[:, -1:] - rows[:, :1]) * share
        nearest = np.abs(rows[:, :, None] - wanted[:, None]).argmin(axis=1)
        total, device, accumulation = (
            np.take_along_axis(each, nearest, axis=1)
            for each in (every.total, every.device, every.accumulation)
        )
        return Candidates(total, device, accumulation, every.runs)

    @cached_property
    def rows(self) -> tuple[tuple[FloatArray, FloatArray, FloatArray], ...]:
        """Of each of the G batches of every size: of a device, accumulation, one over the total."""
        found = self.batches
        shares: Any = 1.0 / found.total
        columns = (found.device, found.accumulation, shares)
        return tuple(zip(*(each.T.astype(np.float32) for each in columns), strict=True))

    @cached_property
    def index(self) -> dict[tuple[int, int], int]:
        """Where each (instances, devices) stands."""
        sizes = zip(self.instances.tolist(), self.devices.tolist(), strict=True)
        return {size: place for place, size in enumerate(sizes)}


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """J models of one formula, `theta` (J, K, p) of K draws, and the noise scales, (J, K)."""

    models: Sequence[ThroughputModel]
    theta: FloatArray
    noise_examples: FloatArray

    @staticmethod
    def of(models: Sequence[ThroughputModel], noise_examples: FloatArray) -> Drawn:
        """Those models; each has as many draws as `noise_examples`, (J, K)."""
        rows = [row for model in models for row in model.draws]
        return Drawn(models, _predictor(rows, noise_examples.shape).theta, noise_examples)

    def first(self, draws: int) -> Drawn:
        """Of the first draws alone."""
        return Drawn(self.models, self.theta[:, :draws], self.noise_examples[:, :draws])

    def part(self, block: slice) -> Drawn:
        """Some of the models."""
        return Drawn(self.models[block], self.theta[block], self.noise_examples[block])


def one_less(
    models: Sequence[ThroughputModel], noise_examples: FloatArray, places: Places
) -> FloatArray:
    """What share of the goodput of each size is left with one instance less, (J, S).

    By the points of J models of one formula, at about as many examples of a device; 0 of one
    instance. `noise_examples` are the medians, (J,).
    """
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(models), _BLOCK)]
    found = [_one_less(models[block], noise_examples[block], places) for block in blocks]
    return np.concatenate(found).astype(np.float64)


def _one_less(
    models: Sequence[ThroughputModel], noise_examples: FloatArray, places: Places
) -> FloatArray:
    batches = places.batches
    predictor = _predictor([model.point for model in models], (len(models),))
    seconds = predictor.step_seconds(
        places.instances[:, None], places.devices[:, None], batches.device, batches.accumulation
    )
    measured = _batch_factors(models, np.broadcast_to(batches.device, seconds.shape))
    if measured is not None:
        seconds *= measured
    noise = noise_examples[:, None].astype(seconds.dtype)
    paid = seconds * (1.0 + noise[..., None] / batches.total.astype(seconds.dtype))
    best = paid.argmin(axis=-1)
    every = np.arange(len(places.devices))
    least = np.take_along_axis(paid, best[..., None], axis=-1)[..., 0]
    runs = batches.runs[:, 0] & predictor.formula.runs(places.devices)
    goodput = np.where(runs, (noise + places.bounds.initial) / least, 0.0)
    left = places.devices - places.devices // places.instances
    devices = np.maximum(left, 1)
    accumulation = batches.accumulation[every, best]
    total = batches.total[every, best] * devices // places.devices
    total = np.maximum(total, places.bounds.initial)
    one = replace(predictor, theta=predictor.theta[:, None], is_aligned=True)
    seconds = one.step_seconds(
        np.maximum(places.instances - 1, 1),
        devices,
        -(-total // (devices * (accumulation + 1))),
        accumulation,
    )
    of_less = total * efficiency(noise, places.bounds.initial, total) / seconds
    runs = (left > 0) & (goodput > 0) & predictor.formula.runs(left)
    share: FloatArray = np.minimum(of_less / np.maximum(goodput, 1e-30), 1.0)
    return np.where(runs, share, 0.0)


def seconds_per_example(drawn: Drawn, places: Places, chosen: IntArray) -> FloatArray:
    """Of J jobs in each of K draws, at the best batch: (J, K, C).

    Args:
        drawn: what is known of J jobs on one kind of device.
        places: S sizes.
        chosen: indices of the C sizes that count for each job, rising, (J, C); it can run there.
    """
    jobs, draws = drawn.noise_examples.shape
    found = np.empty((jobs, draws, chosen.shape[1]), dtype=np.float32)
    unmeasured = replace(drawn.models[0], measured=frozenset())
    log_errors = size_log_errors(unmeasured, places.instances, places.devices)[:draws].T
    factors = np.exp(log_errors).astype(np.float32)
    for start in range(0, jobs, _BLOCK):
        block = slice(start, start + _BLOCK)
        seconds = _seconds(drawn.part(block), places, chosen[block])
        seconds *= factors[chosen[block]].swapaxes(1, 2)
        found[block] = seconds
    job, column, measured = _measured(drawn, places, chosen)
    found[job, :, column] *= np.exp(measured - log_errors[chosen[job, column]])
    return found


def _measured(
    drawn: Drawn, places: Places, chosen: IntArray
) -> tuple[list[int], list[int], FloatArray]:
    """Jobs and columns of chosen sizes that were measured, N of them, and log errors, (N, K)."""
    jobs, columns, errors = [], [], []
    draws = drawn.noise_examples.shape[1]
    nothing = (0.0,) * draws
    for job, model in enumerate(drawn.models):
        known = {(each.instances, each.devices): each.log_errors for each in model.size_errors}
        for size in model.measured & places.index.keys():
            place = places.index[size]
            column = int(chosen[job].searchsorted(place))
            if column < chosen.shape[1] and chosen[job, column] == place:
                jobs.append(job)
                columns.append(column)
                errors.append(known.get(size, nothing)[:draws])
    return jobs, columns, np.array(errors, dtype=np.float64).reshape(-1, draws)


def _seconds(drawn: Drawn, places: Places, chosen: IntArray) -> FloatArray:
    """Without the errors of sizes; as rows (K, J * C), so that each loop of NumPy is long."""
    jobs, draws = drawn.noise_examples.shape
    each, size = chosen.shape[1], chosen.ravel()
    columns = np.repeat(drawn.theta.transpose(2, 1, 0), each, axis=-1)
    formula = formula_of(drawn.models[0].point)
    predictor = Predictor(formula, np.moveaxis(columns, 0, -1), is_aligned=True)
    noise = np.repeat(drawn.noise_examples.T.astype(columns.dtype), each, axis=-1)
    instances, devices = places.instances[size], places.devices[size]
    sync, gamma = predictor.sync_seconds(instances, devices), predictor.gamma(1)
    measured = _batch_factors(drawn.models, places.batches.device[chosen])
    least = None
    for column, rows in enumerate(places.rows):
        device, accumulation, share = (row[size] for row in rows)
        compute = predictor.compute_seconds(instances, devices, device)
        seconds = overlapped_seconds(compute, sync, gamma)
        if accumulation.any():
            compute *= accumulation
            seconds += compute
        if measured is not None:
            seconds *= measured[..., column].ravel()
        share = noise * share
        share += 1.0
        seconds *= share
        least = seconds if least is None else np.minimum(least, seconds, out=least)
    assert least is not None
    least /= noise + noise.dtype.type(places.bounds.initial)
    return least.reshape(draws, jobs, each).swapaxes(0, 1)


def _predictor(rows: Sequence[StepParameters], shape: tuple[int, ...]) -> Predictor:
    found = predictor_of(rows)
    theta: Any = found.theta.astype(np.float32).reshape(*shape, -1)
    return replace(found, theta=theta)


def _batch_factors(
    models: Sequence[ThroughputModel], device_batch: IntArray
) -> FloatArray | None:
    """By how much longer J jobs were measured to take at device batches, (J, ...).

    None where nothing was measured of any.
    """
    if not any(model.batch_errors and any(model.batch_errors.log_errors) for model in models):
        return None
    factors: Any = np.ones(device_batch.shape, dtype=np.float32)
    for row, model, batch in zip(factors, models, device_batch, strict=True):
        errors = model.batch_errors
        if errors is not None and any(errors.log_errors):
            row[:] = np.exp(batch_log_errors(errors, batch))
    return factors
