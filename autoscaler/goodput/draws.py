"""Fixed normal numbers, so that draws change only when their distribution changes.

Two allocations, or today's and yesterday's decision, are compared on the same normals (common
random numbers). Columns are antithetic. With enough draws they are also uncorrelated with
variance 1 in the sample: 32 draws then have exactly the mean and covariance of their
distribution.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from math import inf, isfinite

import numpy as np

from autoscaler.domain.goodput import NoiseScale
from autoscaler.goodput.throughput import FloatArray

DRAWS = 32
# Log standard deviation of an unmeasured noise scale around the job's initial batch.
UNKNOWN_NOISE_LOG_STANDARD_DEVIATION = 1.0


@lru_cache(maxsize=16384)
def normals(draws: int, columns: int, key: str, seed: int = 0) -> FloatArray:
    """Return read-only standard normals (draws, columns), the same for the same arguments.

    Each draw has its mirror image; an odd draw is 0, so that a single draw is the centre.

    Raises:
        ValueError: `draws` is below 1.
    """
    if draws < 1:
        raise ValueError(f"draws={draws}: must be at least 1")
    generator = np.random.default_rng([seed, zlib.crc32(key.encode())])
    half = generator.standard_normal((draws // 2, columns))
    if columns <= len(half):
        half = _orthonormal(half) * np.sqrt(draws / 2)
    centre = np.zeros((draws % 2, columns))
    mirrored = generator.permutation(np.concatenate([half, -half, centre]))
    mirrored.setflags(write=False)
    return mirrored


def size_normals(draws: int, device_kind: str, instances: int, devices: int) -> FloatArray:
    """Return the normals (draws,) for the error of one size on one kind of device."""
    return normals(draws, 1, f"size {device_kind} {instances} {devices}")[:, 0]


def noise_draws(
    noise: NoiseScale | None, initial_batch: int, draws: int = DRAWS, seed: int = 0
) -> FloatArray:
    """Return log-normal draws (draws,) of the noise scale around its measurement, in examples.

    Without a usable measurement (none, or |G|^2 or the variance estimated at 0 or below) the
    median is the initial batch and the log standard deviation is 1. So an unknown noise scale does
    not make every batch look efficient.
    """
    median, deviation = noise_belief(noise, initial_batch)
    sample: FloatArray = median * np.exp(deviation * normals(draws, 1, "noise", seed)[:, 0])
    return sample


def noise_belief(noise: NoiseScale | None, initial_batch: int) -> tuple[float, float]:
    """Return the median noise scale in examples, and the standard deviation of its logarithm."""
    if noise is not None and is_usable(noise):
        return noise.examples, noise.log_standard_deviation
    return float(initial_batch), UNKNOWN_NOISE_LOG_STANDARD_DEVIATION


def is_usable(noise: NoiseScale) -> bool:
    """Return whether the noise scale is positive and finite, with a finite deviation."""
    if not (noise.gradient_square > 0 and noise.gradient_variance > 0):
        return False
    return isfinite(noise.examples) and 0 <= noise.log_standard_deviation < inf


def _orthonormal(columns: FloatArray) -> FloatArray:
    """Return the nearest orthonormal columns (Loewdin's method)."""
    left, _, right = np.linalg.svd(columns, full_matrices=False)
    orthonormal: FloatArray = left @ right
    return orthonormal
