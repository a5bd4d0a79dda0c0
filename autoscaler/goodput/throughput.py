"""Throughput models: how long a step takes on N instances with R devices in all.

A formula says of what the time is made; `formulas.py` has those there are. An array `theta` holds
the parameters of one along its last axis, in the order of its `names`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoscaler.domain.goodput import StepParameters

FloatArray = NDArray[np.float64]

# Ratios count as no less than the smallest number to this power: their tenth power would be none,
# and processors take a hundred times as long for numbers that small. In single precision that
# makes times longer by 0.02 % at most, in double by nothing.
_SMALLEST_POWER = 0.1
Features = tuple[FloatArray | float, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """What is known of a job before it has run: the order of magnitude of its times.

    `example_seconds` are those of one example on one device, `example_log_deviation` how unsure
    they are; `across_seconds` are those of exchanging the whole gradient between two devices of
    different instances, `within_seconds` of one.
    """

    example_seconds: float
    example_log_deviation: float
    across_seconds: float
    within_seconds: float


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed of one parameter: that it is normal in its coordinate.

    `deviation` is that of the coordinate; of one that `follows` the parameter at that place, it
    comes on top of what is not known of the other.
    """

    median: float
    deviation: float
    follows: int | None = None


class Formula(Protocol):
    """A throughput model: the features of a place that its p parameters are multiplied by.

    T_compute and T_sync are sums of parameters in seconds, each times its feature; the last
    parameter, gamma in [1, 10], says how far they overlap. With s steps of accumulation::

        T_step = s * T_compute + (T_compute^gamma + T_sync^gamma)^(1/gamma)

    No feature is below 0, and the first two are above 0 everywhere. Arrays of places have one
    number of axes and broadcast, and so do the features.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters: those of T_compute, those of T_sync, gamma."""
        ...

    def parameters(self, values: Sequence[float]) -> StepParameters:
        """The domain's word for p values."""
        ...

    def beliefs(self, scale: Scale) -> tuple[Belief, ...]:
        """What is believed of each parameter before anything is measured."""
        ...

    def runs(self, devices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether a job can run on so many devices in all."""
        ...

    def compute_features(
        self, instances: FloatArray, devices: FloatArray, device_batch: FloatArray
    ) -> Features:
        """Those of a micro-step of `device_batch` examples for each device."""
        ...

    def sync_features(self, instances: FloatArray, devices: FloatArray) -> Features:
        """Those of an exchange of gradients between all devices."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Predictor:
    """A formula with K sets of its parameters, `theta` (K, p), or with one, (p,).

    Every method returns ``theta.shape[:-1]`` followed by the broadcast shape of the places: K
    draws and A allocations give (K, A). But if `is_aligned`, the places broadcast with those axes.
    All is computed in the precision of `theta`.
    """

    formula: Formula
    theta: FloatArray
    is_aligned: bool = False

    def compute_seconds(
        self, instances: ArrayLike, devices: ArrayLike, device_batch: ArrayLike
    ) -> FloatArray:
        """T_compute: one micro-step of `device_batch` examples for each device, in seconds."""
        return self._compute(*self._places(instances, devices, device_batch))

    def sync_seconds(self, instances: ArrayLike, devices: ArrayLike) -> FloatArray:
        """T_sync: to synchronise `devices` devices in all, spread over `instances`, in seconds."""
        return self._sync(*self._places(instances, devices))

    def step_seconds(
        self,
        instances: ArrayLike,
        devices: ArrayLike,
        device_batch: ArrayLike,
        accumulation: ArrayLike,
    ) -> FloatArray:
        """T_step: `accumulation` micro-steps without synchronisation and one with it."""
        count, total, batch, extra = self._places(instances, devices, device_batch, accumulation)
        compute = self._compute(count, total, batch)
        sync = self._sync(count, total)
        gamma = self.gamma(batch.ndim)
        return extra * compute + overlapped_seconds(compute, sync, gamma)

    def gamma(self, axes: int) -> FloatArray:
        """The last parameter, to be broadcast with places of so many axes."""
        (gamma,) = _columns(self.theta[..., -1:], self._axes(axes))
        return gamma

    def _axes(self, axes: int) -> int:
        """Axes of the places, beside the parameters' own."""
        return 0 if self.is_aligned else axes

    def _places(self, *values: ArrayLike) -> list[FloatArray]:
        """The values as arrays with one number of axes, not broadcast: that costs the table."""
        arrays = [np.asarray(value, dtype=self.theta.dtype) for value in values]
        axes = max(array.ndim for array in arrays)
        return [array.reshape((1,) * (axes - array.ndim) + array.shape) for array in arrays]

    def _compute(self, count: FloatArray, total: FloatArray, batch: FloatArray) -> FloatArray:
        features = self.formula.compute_features(count, total, batch)
        return _sum(self.theta[..., : len(features)], features, self._axes(batch.ndim))

    def _sync(self, count: FloatArray, total: FloatArray) -> FloatArray:
        features = self.formula.sync_features(count, total)
        return _sum(self.theta[..., -1 - len(features) : -1], features, self._axes(total.ndim))


def overlapped_seconds(compute: FloatArray, sync: FloatArray, gamma: FloatArray) -> FloatArray:
    """``(compute^gamma + sync^gamma)^(1/gamma)``, in seconds, for any size of the powers.

    gamma 1 is one after the other, gamma towards infinity full overlap.
    """
    longer = np.maximum(compute, sync)
    ratio = np.minimum(compute, sync) / longer
    least = float(np.finfo(ratio.dtype).tiny) ** _SMALLEST_POWER
    power = np.maximum(ratio, least) ** gamma
    overlapped: FloatArray = longer * (1.0 + power) ** (1.0 / gamma)
    return overlapped


def doublings_of(count: FloatArray) -> FloatArray:
    """``log2(count / 2)``: how often the two that synchronisation begins with were doubled."""
    doublings: FloatArray = np.log2(np.maximum(count, 2.0) / 2.0)
    return doublings


def _columns(theta: FloatArray, axes: int) -> tuple[FloatArray, ...]:
    """Parameters, each of shape ``theta.shape[:-1]`` and then `axes` axes of length 1."""
    shape = theta.shape[:-1] + (1,) * axes
    return tuple(theta[..., column].reshape(shape) for column in range(theta.shape[-1]))


def _sum(theta: FloatArray, features: Features, axes: int) -> FloatArray:
    first, *others = _columns(theta, axes)
    total = first * features[0]
    for column, feature in zip(others, features[1:], strict=True):
        total = total + column * feature
    return total
