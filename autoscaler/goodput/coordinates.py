"""Unbounded coordinates of a formula's parameters, in which priors are normal.

The coordinate of a parameter in seconds is its logarithm. The last parameter, gamma in [1, 10],
has the coordinate x of ``1 + 9 / (1 + exp(-x))``.
"""

from __future__ import annotations

import numpy as np

from autoscaler.goodput.throughput import FloatArray

GAMMA_MINIMUM = 1.0
GAMMA_MAXIMUM = 10.0
# Parameters may be 0, which has no logarithm; these values, below any clock, replace 0.
SMALLEST_SECONDS = 1e-12
SMALLEST_SHARE = 1e-6


def to_coordinates(theta: FloatArray) -> FloatArray:
    """Return the coordinates (..., p) of parameters (..., p)."""
    share = (theta[..., -1:] - GAMMA_MINIMUM) / (GAMMA_MAXIMUM - GAMMA_MINIMUM)
    share = np.clip(share, SMALLEST_SHARE, 1.0 - SMALLEST_SHARE)
    seconds = np.log(np.maximum(theta[..., :-1], SMALLEST_SECONDS))
    return np.concatenate([seconds, np.log(share / (1.0 - share))], axis=-1)


def to_theta(coordinates: FloatArray) -> FloatArray:
    """Return the parameters (..., p) of coordinates (..., p)."""
    return np.concatenate([np.exp(coordinates[..., :-1]), _gamma(coordinates[..., -1:])], axis=-1)


def gamma_slope(gamma: float) -> float:
    """Return the derivative of gamma with respect to its coordinate."""
    width = GAMMA_MAXIMUM - GAMMA_MINIMUM
    return (gamma - GAMMA_MINIMUM) * (GAMMA_MAXIMUM - gamma) / width


def _gamma(coordinate: FloatArray) -> FloatArray:
    """Return gamma, computed by tanh because the exponential overflows far from 0."""
    middle, half = (GAMMA_MAXIMUM + GAMMA_MINIMUM) / 2, (GAMMA_MAXIMUM - GAMMA_MINIMUM) / 2
    gamma: FloatArray = middle + half * np.tanh(coordinate / 2)
    return gamma
