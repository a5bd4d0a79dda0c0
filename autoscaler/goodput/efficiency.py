"""Statistical efficiency: progress per example at a batch larger than the initial one.

With phi the gradient noise scale in examples, B0 the initial and B the total batch::

    efficiency = (phi + B0) / (phi + B)        gain = efficiency * B / B0

Sources: McCandlish et al. 2018 (the noise scale, section 2.3), Johnson et al. 2020 (AdaScale, the
gain of section 3), Pollux (OSDI'21) section 3.1 (their combination as goodput).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from autoscaler.goodput.throughput import FloatArray


def efficiency(
    noise_scale_examples: ArrayLike, initial_batch: ArrayLike, batch: ArrayLike
) -> FloatArray:
    """Return the useful examples per example at `batch`, from B0/B (no noise) to 1 (only noise).

    `batch` is at least `initial_batch`, which is at least 1. A negative or NaN noise scale counts
    as 0, so that an unknown noise scale never justifies a larger batch. Infinity gives 1. The
    result is never NaN.
    """
    noise = np.fmax(np.asarray(noise_scale_examples, dtype=np.float64), 0.0)
    total = np.asarray(batch, dtype=np.float64)
    return 1.0 - (total - np.asarray(initial_batch, dtype=np.float64)) / (noise + total)


def gain(
    noise_scale_examples: ArrayLike, initial_batch: ArrayLike, batch: ArrayLike
) -> FloatArray:
    """Return the progress of a step at `batch`, in steps at `initial_batch`: within [1, B/B0]."""
    scale = np.asarray(batch, dtype=np.float64) / np.asarray(initial_batch, dtype=np.float64)
    gained = efficiency(noise_scale_examples, initial_batch, batch) * scale
    return np.clip(gained, 1.0, np.maximum(scale, 1.0))
