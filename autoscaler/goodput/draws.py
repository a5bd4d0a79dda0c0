"""Fixed normal numbers, so that draws move only when what they are drawn from moves.

Comparing two allocations, or today's decision with yesterday's, on the same normals leaves the
difference that measurements make (common random numbers). Columns are antithetic and, where there
are draws enough, uncorrelated with variance 1 in the sample itself: 32 draws then have exactly
the mean and the covariance that they stand for.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from math import inf, isfinite

import numpy as np

from autoscaler.domain.goodput import NoiseScale
from autoscaler.goodput.throughput import FloatArray

DRAWS = 32
# A noise scale that nobody has measured: the owner's batch is taken for the owner's guess of it.
UNKNOWN_NOISE_LOG_STANDARD_DEVIATION = 1.0


@lru_cache(maxsize=16384)
def normals(draws: int, columns: int, key: str, seed: int = 0) -> FloatArray:
    """Standard normals (draws, columns), the same for the same arguments; not to be written to.

    Each draw comes with its mirror image; one without is 0, so that a single draw is the centre.

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
    """The normals (draws,) of the error of one size on one kind of device."""
    return normals(draws, 1, f"size {device_kind} {instances} {devices}")[:, 0]


def noise_draws(
    noise: NoiseScale | None, initial_batch: int, draws: int = DRAWS, seed: int = 0
) -> FloatArray:
    """Draws (draws,) of the noise scale, in examples: log-normal around the measured one.

    Without a usable measurement (none, or a |G|^2 or variance that noise has pushed to 0 or
    below) they lie around the initial batch with a log standard deviation of 1: a noise scale
    that is not known must not make every batch look efficient.
    """
    median, deviation = noise_belief(noise, initial_batch)
    sample: FloatArray = median * np.exp(deviation * normals(draws, 1, "noise", seed)[:, 0])
    return sample


def noise_belief(noise: NoiseScale | None, initial_batch: int) -> tuple[float, float]:
    """The median of the draws, in examples, and the standard deviation of their logarithm."""
    if noise is not None and is_usable(noise):
        return noise.examples, noise.log_standard_deviation
    return float(initial_batch), UNKNOWN_NOISE_LOG_STANDARD_DEVIATION


def is_usable(noise: NoiseScale) -> bool:
    """Whether the noise scale says anything: it is positive and finite, its spread finite."""
    if not (noise.gradient_square > 0 and noise.gradient_variance > 0):
        return False
    return isfinite(noise.examples) and 0 <= noise.log_standard_deviation < inf


def _orthonormal(columns: FloatArray) -> FloatArray:
    """The nearest orthonormal columns (Loewdin's)."""
    left, _, right = np.linalg.svd(columns, full_matrices=False)
    orthonormal: FloatArray = left @ right
    return orthonormal
