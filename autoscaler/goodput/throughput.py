"""Throughput of one job: how long a step takes on N instances with R devices in all.

The formula and its sources stand at `ThroughputParameters`. An array `theta` holds the seven
parameters along its last axis, in the order of that class. Every function of a configuration
returns ``theta.shape[:-1]`` followed by the configuration's broadcast shape: K draws and A
configurations give (K, A).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoscaler.domain.goodput import ThroughputParameters

FloatArray = NDArray[np.float64]

# Of each parameter, in the order of ThroughputParameters.
LEAST = np.array([0.0] * 6 + [1.0])
_VALUES = attrgetter(*(field.name for field in fields(ThroughputParameters)))


def as_array(parameters: ThroughputParameters | Sequence[ThroughputParameters]) -> FloatArray:
    """One set of parameters as (7,), K of them as (K, 7).

    Raises:
        ValueError: a parameter is negative or not finite, gamma is below 1, or computing takes
            no time at all.
    """
    if isinstance(parameters, ThroughputParameters):
        return as_array((parameters,)).reshape(7)
    theta = np.array([_VALUES(row) for row in parameters], dtype=np.float64).reshape(-1, 7)
    allowed = np.isfinite(theta) & (theta >= LEAST)
    if not allowed.all():
        row, column = np.argwhere(~allowed)[0]
        name, least = fields(ThroughputParameters)[column].name, LEAST[column]
        raise ValueError(f"{name}={theta[row, column]}: must be finite and at least {least:g}")
    if (theta[:, :2].sum(axis=1) == 0).any():
        raise ValueError("alpha_compute_seconds=0: computing takes no time, beta_compute is 0 too")
    return theta


def from_array(theta: FloatArray) -> tuple[ThroughputParameters, ...]:
    """The K sets of parameters of a (K, 7) array; a (7,) array holds one."""
    return tuple(ThroughputParameters(*row) for row in np.atleast_2d(theta).tolist())


def compute_seconds(theta: FloatArray, device_batch: ArrayLike) -> FloatArray:
    """T_compute: one micro-step of `device_batch` examples on each device, in seconds."""
    (batch,) = _aligned(device_batch)
    alpha, beta = _columns(theta, slice(0, 2), batch.ndim)
    return alpha + beta * batch


def sync_seconds(theta: FloatArray, instances: ArrayLike, devices: ArrayLike) -> FloatArray:
    """T_sync: to synchronise `devices` devices in all, spread over `instances`, in seconds."""
    count, total = _aligned(instances, devices)
    across_alpha, across_beta, within_alpha, within_beta = _columns(theta, slice(2, 6), total.ndim)
    doublings = doublings_of(total)
    within = within_alpha + within_beta * doublings
    across = across_alpha + across_beta * doublings
    return np.where(total > 1, np.where(count > 1, across, within), 0.0)


def doublings_of(devices: FloatArray) -> FloatArray:
    """``log2(R / 2)``: how often the two devices that synchronisation begins with were doubled."""
    doublings: FloatArray = np.log2(np.maximum(devices, 2.0) / 2.0)
    return doublings


def step_seconds(
    theta: FloatArray,
    instances: ArrayLike,
    devices: ArrayLike,
    device_batch: ArrayLike,
    accumulation: ArrayLike,
) -> FloatArray:
    """T_step: `accumulation` micro-steps without synchronisation and one with it, in seconds."""
    count, total, batch, extra = _aligned(instances, devices, device_batch, accumulation)
    compute = compute_seconds(theta, batch)
    sync = sync_seconds(theta, count, total)
    (gamma,) = _columns(theta, slice(6, 7), batch.ndim)
    return extra * compute + overlapped_seconds(compute, sync, gamma)


def overlapped_seconds(compute: FloatArray, sync: FloatArray, gamma: FloatArray) -> FloatArray:
    """``(compute^gamma + sync^gamma)^(1/gamma)``, in seconds, for any size of the powers.

    gamma 1 is one after the other, gamma towards infinity full overlap.
    """
    longer = np.maximum(compute, sync)
    ratio = np.minimum(compute, sync) / longer
    overlapped: FloatArray = longer * (1.0 + ratio**gamma) ** (1.0 / gamma)
    return overlapped


def _aligned(*values: ArrayLike) -> list[FloatArray]:
    """The values as arrays with one number of axes, not broadcast: that would cost the table."""
    arrays = [np.asarray(value, dtype=np.float64) for value in values]
    axes = max(array.ndim for array in arrays)
    return [array.reshape((1,) * (axes - array.ndim) + array.shape) for array in arrays]


def _columns(theta: FloatArray, which: slice, axes: int) -> tuple[FloatArray, ...]:
    """Parameters, each of shape ``theta.shape[:-1]`` and then `axes` axes of length 1."""
    shape = theta.shape[:-1] + (1,) * axes
    return tuple(column.reshape(shape) for column in np.moveaxis(theta[..., which], -1, 0))
