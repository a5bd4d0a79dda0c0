"""Throughput models: seconds of a step on N instances with R devices in total.

A formula defines the parts of the step time; `formulas.py` holds all formulas. An array `theta`
holds the parameters of a formula along its last axis, in the order of its `names`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoscaler.domain.goodput import StepParameters

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Ratios are at least the smallest normal number to this power. Their tenth power would otherwise
# be subnormal, which processors compute a hundred times slower. The error of times is at most
# 0.02 % in single precision and 0 in double precision.
_SMALLEST_POWER = 0.1
Features = tuple[FloatArray | float, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """Orders of magnitude of a job's times, known before it runs.

    `example_seconds` is the time of one example on one device, with `example_log_deviation` as the
    standard deviation of its logarithm. `across_seconds` is the time to exchange the whole
    gradient between two devices of different instances, and `within_seconds` of the same instance.
    """

    example_seconds: float
    example_log_deviation: float
    across_seconds: float
    within_seconds: float


@dataclass(frozen=True, slots=True)
class ParameterPrior:
    """Normal prior of one parameter in its coordinate.

    `deviation` is the standard deviation of the coordinate. If the parameter `follows` the one at
    that index, the deviation of the other parameter is added.
    """

    median: float
    deviation: float
    follows: int | None = None


class Formula(Protocol):
    """A throughput model, defined by the features that multiply its p parameters.

    T_compute and T_sync are sums of parameters in seconds, each multiplied by its feature. The
    last parameter, gamma in [1, 10], sets how far they overlap. With s steps of accumulation::

        T_step = s * T_compute + (T_compute^gamma + T_sync^gamma)^(1/gamma)

    Where every micro-step gathers the model, T_gather is a third such sum, whose parameters are
    followed by their overlap, and T_compute is replaced by::

        T_micro = (T_compute^q + T_gather^q)^(1/q)          q = 1 + overlap

    Features are at least 0, and the first two are above 0 everywhere. Arrays of instances, devices
    and batches have the same number of axes and broadcast, and so do the features.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters: those of T_compute, T_gather, T_sync, then gamma."""
        ...

    @property
    def ratios(self) -> tuple[int, ...]:
        """The indices of the parameters that are not in seconds, gamma's among them."""
        ...

    def parameters(self, values: Sequence[float]) -> StepParameters:
        """Return p values as the domain's class of parameters."""
        ...

    def beliefs(self, scale: Scale) -> tuple[ParameterPrior, ...]:
        """Return the prior of each parameter before any measurement."""
        ...

    def runs(self, devices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether a job can run on each total number of devices."""
        ...

    def compute_features(
        self, instances: FloatArray, devices: FloatArray, device_batch: FloatArray
    ) -> Features:
        """Return the features of a micro-step of `device_batch` examples per device."""
        ...

    def gather_features(self, instances: FloatArray, devices: FloatArray) -> Features:
        """Return the features of a micro-step's gathers of the model; empty without any."""
        ...

    def sync_features(self, instances: FloatArray, devices: FloatArray) -> Features:
        """Return the features of a gradient exchange between all devices."""
        ...

    def lost_together(self, instances: IntArray, devices: IntArray) -> IntArray:
        """Return the number of instances that stop training when one of them is lost."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Predictor:
    """A formula with K sets of parameters, `theta` (K, p), or with one set, (p,).

    Every method returns ``theta.shape[:-1]`` followed by the broadcast shape of the arguments: K
    draws and A allocations give (K, A). With `is_aligned`, the arguments broadcast with the axes
    of `theta` instead. The precision is that of `theta`.
    """

    formula: Formula
    theta: FloatArray
    is_aligned: bool = False

    def compute_seconds(
        self, instances: ArrayLike, devices: ArrayLike, device_batch: ArrayLike
    ) -> FloatArray:
        """Return T_compute: seconds of a micro-step of `device_batch` examples per device.

        They include the exposed part of the gathers of the model, if there are any (T_micro).
        """
        return self._compute(*self._places(instances, devices, device_batch))

    def sync_seconds(self, instances: ArrayLike, devices: ArrayLike) -> FloatArray:
        """Return T_sync: seconds to synchronise `devices` devices in total over `instances`."""
        return self._sync(*self._places(instances, devices))

    def step_seconds(
        self,
        instances: ArrayLike,
        devices: ArrayLike,
        device_batch: ArrayLike,
        accumulation: ArrayLike,
    ) -> FloatArray:
        """Return T_step: seconds of `accumulation` micro-steps without sync and one with it."""
        instance_counts, device_counts, batch, extra_steps = self._places(
            instances, devices, device_batch, accumulation
        )
        compute = self._compute(instance_counts, device_counts, batch)
        sync = self._sync(instance_counts, device_counts)
        gamma = self.gamma(batch.ndim)
        return extra_steps * compute + overlapped_seconds(compute, sync, gamma)

    def gamma(self, axes: int) -> FloatArray:
        """Return the last parameter, shaped to broadcast with arguments of this number of axes."""
        (gamma,) = _columns(self.theta[..., -1:], self._axes(axes))
        return gamma

    def _axes(self, axes: int) -> int:
        """Return the number of axes of the arguments that follow those of the parameters."""
        return 0 if self.is_aligned else axes

    def _places(self, *values: ArrayLike) -> list[FloatArray]:
        """Return the values as arrays of equal rank, not broadcast in order to save memory."""
        arrays = [np.asarray(value, dtype=self.theta.dtype) for value in values]
        axes = max(array.ndim for array in arrays)
        return [array.reshape((1,) * (axes - array.ndim) + array.shape) for array in arrays]

    def _compute(self, count: FloatArray, total: FloatArray, batch: FloatArray) -> FloatArray:
        features = self.formula.compute_features(count, total, batch)
        axes, place = self._axes(batch.ndim), len(features)
        compute = _sum(self.theta[..., :place], features, axes)
        gathers = self.formula.gather_features(count, total)
        if not gathers:
            return compute
        gather = _sum(self.theta[..., place : place + len(gathers)], gathers, axes)
        place += len(gathers)
        (overlap,) = _columns(self.theta[..., place : place + 1], axes)
        return overlapped_seconds(compute, gather, 1.0 + overlap)

    def _sync(self, count: FloatArray, total: FloatArray) -> FloatArray:
        features = self.formula.sync_features(count, total)
        return _sum(self.theta[..., -1 - len(features) : -1], features, self._axes(total.ndim))


def overlapped_seconds(compute: FloatArray, sync: FloatArray, gamma: FloatArray) -> FloatArray:
    """Return ``(compute^gamma + sync^gamma)^(1/gamma)``, in seconds, without overflow.

    gamma 1 means no overlap; gamma towards infinity means full overlap.
    """
    longer = np.maximum(compute, sync)
    overlapped: FloatArray = np.minimum(compute, sync)
    overlapped /= longer
    least = float(np.finfo(overlapped.dtype).tiny) ** _SMALLEST_POWER
    # A row instead of the number: NumPy's maximum is then three times as fast.
    row = np.full(overlapped.shape[-1:], least, dtype=overlapped.dtype)
    overlapped = np.maximum(overlapped, row)
    overlapped **= gamma
    overlapped += 1.0
    overlapped **= 1.0 / gamma
    overlapped *= longer
    return overlapped


def doublings_of(count: FloatArray) -> FloatArray:
    """Return ``log2(count / 2)``, at least 0: the doublings from the smallest sync of two."""
    doublings: FloatArray = np.log2(np.maximum(count, 2.0) / 2.0)
    return doublings


def _columns(theta: FloatArray, axes: int) -> tuple[FloatArray, ...]:
    """Return each parameter with the shape ``theta.shape[:-1]`` plus `axes` axes of length 1."""
    shape = theta.shape[:-1] + (1,) * axes
    return tuple(theta[..., column].reshape(shape) for column in range(theta.shape[-1]))


def _sum(theta: FloatArray, features: Features, axes: int) -> FloatArray:
    first, *other_columns = _columns(theta, axes)
    is_constant = isinstance(features[0], float) and features[0] == 1.0
    total = first if is_constant else first * features[0]
    for column, feature in zip(other_columns, features[1:], strict=True):
        total = total + column * feature
    return total
