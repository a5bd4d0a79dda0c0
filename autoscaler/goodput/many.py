"""Goodput of many jobs at once, of one formula and on one kind of device.

As `goodput_draws` job by job, but in single precision, and of one instance less only by the point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscaler.domain.goodput import BatchBounds, StepParameters
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.batch import Candidates, batch_log_errors, candidates
from autoscaler.goodput.efficiency import efficiency
from autoscaler.goodput.formulas import formula_of, predictor_of
from autoscaler.goodput.prediction import size_log_errors
from autoscaler.goodput.throughput import FloatArray, Formula, Predictor, overlapped_seconds

IntArray = NDArray[np.int64]

# Batches that are looked at, of those worth a look: between two of them goodput is flat.
_BATCHES = 12
# Jobs that are looked at together: few of NumPy's calls, and what they take stays in the cache.
_BLOCK = 256


@dataclass(frozen=True, eq=False)
class Places:
    """S sizes on one kind of device."""

    device_kind: str
    instances: IntArray
    devices: IntArray

    @cached_property
    def index(self) -> dict[tuple[int, int], int]:
        """Where each (instances, devices) stands."""
        sizes = zip(self.instances.tolist(), self.devices.tolist(), strict=True)
        return {size: place for place, size in enumerate(sizes)}

    def batches(self, bounds: BatchBounds) -> Candidates:
        """Some of those worth a look, (S, G): evenly spaced in their logarithms."""
        return _few(bounds.on(self.device_kind), self.devices.tobytes())


@lru_cache(maxsize=4096)
def _few(bounds: BatchBounds, devices: bytes) -> Candidates:
    every = candidates(bounds, np.frombuffer(devices, dtype=np.int64))
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


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """At what batch each of J jobs may run: `which`, (J,), of those that there are."""

    every: Sequence[BatchBounds]
    which: IntArray

    def part(self, block: slice) -> Bounds:
        """Of some of the jobs."""
        return Bounds(self.every, self.which[block])


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """J models of one formula on one kind of device, in K draws.

    `theta` is (J, K, p), the noise scales are (J, K).
    """

    models: Sequence[ThroughputModel]
    theta: FloatArray
    noise_examples: FloatArray
    bounds: Bounds

    def first(self, draws: int) -> Drawn:
        """Of the first draws alone."""
        return replace(
            self, theta=self.theta[:, :draws], noise_examples=self.noise_examples[:, :draws]
        )

    def part(self, block: slice) -> Drawn:
        """Some of the models."""
        return Drawn(
            self.models[block],
            self.theta[block],
            self.noise_examples[block],
            self.bounds.part(block),
        )


def theta_of(models: Sequence[ThroughputModel], draws: int) -> FloatArray:
    """The parameters of J models of one formula in each of their draws, (J, K, p)."""
    rows = [row for model in models for row in model.draws]
    return _predictor(rows, (len(models), draws)).theta


@dataclass(frozen=True, slots=True, eq=False)
class _Batches:
    """What J jobs may run at: G batches of each of B bounds on each of S sizes, (G, B * S).

    Those of a job begin at its `first`, (J, 1), or (1, 1) where all have the same; `initial` is
    alike. `runs` is (B * S,).
    """

    total: IntArray
    device: IntArray
    accumulation: IntArray
    runs: NDArray[np.bool_]
    first: IntArray
    initial: FloatArray


def _batches(bounds: Bounds, places: Places) -> _Batches:
    present, which = np.unique(bounds.which, return_inverse=True)
    distinct = [bounds.every[own] for own in present.tolist()]
    found = [places.batches(own) for own in distinct]
    most = max(own.total.shape[1] for own in found)
    kept = [np.minimum(np.arange(most), own.total.shape[1] - 1) for own in found]
    total, device, accumulation = (
        np.concatenate([each[:, at] for each, at in zip(of_all, kept, strict=True)]).T.copy()
        for of_all in (
            [own.total for own in found],
            [own.device for own in found],
            [own.accumulation for own in found],
        )
    )
    which = which[:, None] if len(distinct) > 1 else np.zeros((1, 1), dtype=np.int64)
    initial: Any = np.array([own.initial for own in distinct], dtype=np.float32)
    return _Batches(
        total=total,
        device=device,
        accumulation=accumulation,
        runs=np.concatenate([own.runs[:, 0] for own in found]),
        first=which * len(places.devices),
        initial=initial[which],
    )


def runs_at(bounds: Bounds, formula: Formula, places: Places) -> NDArray[np.bool_]:
    """Whether each of J jobs of that formula can run at each size, (J, S), or (1, S) if alike."""
    batches = _batches(bounds, places)
    runs = batches.runs[batches.first + np.arange(len(places.devices))]
    found: NDArray[np.bool_] = runs & formula.runs(places.devices)
    return found


def one_less(
    models: Sequence[ThroughputModel],
    noise_examples: FloatArray,
    bounds: Bounds,
    places: Places,
) -> FloatArray:
    """What share of the goodput of each size is left with one instance less, (J, S).

    By the points of J models of one formula, at about as many examples of a device; 0 of one
    instance. `noise_examples` are the medians, (J,).
    """
    found = []
    for start in range(0, len(models), _BLOCK):
        block = slice(start, start + _BLOCK)
        own = bounds.part(block)
        found.append(_one_less(models[block], noise_examples[block], own, places))
    return np.concatenate(found).astype(np.float32)


def _one_less(
    models: Sequence[ThroughputModel],
    noise_examples: FloatArray,
    bounds: Bounds,
    places: Places,
) -> FloatArray:
    batches = _batches(bounds, places)
    at = batches.first + np.arange(len(places.devices))
    every, device = batches.total[:, at], batches.device[:, at]
    point = _predictor([model.point for model in models], (len(models), 1))
    point = replace(point, is_aligned=True)
    seconds = point.step_seconds(
        places.instances, places.devices, device, batches.accumulation[:, at]
    )
    measured = _batch_factors(models, np.broadcast_to(device, seconds.shape))
    if measured is not None:
        seconds *= measured
    noise = noise_examples[:, None].astype(seconds.dtype)
    paid = seconds * (1.0 + noise / every.astype(seconds.dtype))
    best = paid.argmin(axis=0)[None]
    least = paid.min(axis=0)
    runs = batches.runs[at] & point.formula.runs(places.devices)
    goodput = np.where(runs, (noise + batches.initial) / least, 0.0)
    left = places.devices - places.devices // places.instances
    devices = np.maximum(left, 1)
    total, accumulation = (
        np.take_along_axis(each, best, axis=0)[0] for each in (every, batches.accumulation[:, at])
    )
    total = np.maximum(total * devices // places.devices, batches.initial.astype(np.int64))
    seconds = point.step_seconds(
        np.maximum(places.instances - 1, 1),
        devices,
        -(-total // (devices * (accumulation + 1))),
        accumulation,
    )
    of_less = total * efficiency(noise, batches.initial, total) / seconds
    runs = (left > 0) & (goodput > 0) & point.formula.runs(left)
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
    found: Any = np.empty((jobs, draws, chosen.shape[1]), dtype=np.float32)
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
    every: FloatArray = found
    return every


def _measured(
    drawn: Drawn, places: Places, chosen: IntArray
) -> tuple[list[int], list[int], FloatArray]:
    """Jobs and columns of chosen sizes that were measured, N of them, and log errors, (N, K)."""
    jobs, columns, errors = [], [], []
    draws = drawn.noise_examples.shape[1]
    nothing = (0.0,) * draws
    for job, model in enumerate(drawn.models):
        if not model.measured:
            continue
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
    batches = _batches(drawn.bounds, places)
    at = (batches.first + chosen).ravel()
    measured = _batch_factors(drawn.models, batches.device[:, batches.first + chosen])
    initial = np.broadcast_to(batches.initial, chosen.shape).ravel()
    least = None
    for column, total in enumerate(batches.total):
        device, accumulation = batches.device[column][at], batches.accumulation[column][at]
        compute = predictor.compute_seconds(instances, devices, device)
        seconds = overlapped_seconds(compute, sync, gamma)
        if accumulation.any():
            compute *= accumulation.astype(compute.dtype)
            seconds += compute
        if measured is not None:
            seconds *= measured[column].ravel()
        share = noise * (1.0 / total[at]).astype(noise.dtype)
        share += 1.0
        seconds *= share
        least = seconds if least is None else np.minimum(least, seconds, out=least)
    assert least is not None
    least /= noise + initial
    return least.reshape(draws, jobs, each).swapaxes(0, 1)


def _predictor(rows: Sequence[StepParameters], shape: tuple[int, ...]) -> Predictor:
    found = predictor_of(rows)
    theta: Any = found.theta.astype(np.float32).reshape(*shape, -1)
    return replace(found, theta=theta)


def _batch_factors(models: Sequence[ThroughputModel], device_batch: IntArray) -> FloatArray | None:
    """By how much longer J jobs were measured to take at device batches, (G, J, ...).

    None where nothing was measured of any.
    """
    if not any(model.batch_errors and any(model.batch_errors.log_errors) for model in models):
        return None
    factors: Any = np.ones(device_batch.shape, dtype=np.float32)
    for job, model in enumerate(models):
        errors = model.batch_errors
        if errors is not None and any(errors.log_errors):
            factors[:, job] = np.exp(batch_log_errors(errors, device_batch[:, job]))
    found: FloatArray = factors
    return found
