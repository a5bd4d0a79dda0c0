"""Predicted noise scale over the rest of a job whose program has run before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.domain.goodput import NoiseCurve, NoiseScale
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.goodput.draws import is_usable
from autoscaler.goodput.throughput import FloatArray

# Ends of the pieces as shares of a job's total progress. They are fixed, so that a change planned
# for the end of a piece gets nearer, and denser at first, where noise scales grow fastest.
_PIECE_ENDS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1.0)
# Bounds of today's noise scale divided by the earlier run's at the same progress. A measurement at
# another batch size differs.
_LEAST_LEVEL, _MOST_LEVEL = 0.1, 10.0
_SMALLEST_EXAMPLES = 1e-9


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of the remaining work, in useful examples, with its predicted noise scale."""

    work: float
    noise: NoiseScale


def predicted_pieces(job: JobSnapshot) -> tuple[Piece, ...]:
    """Split the rest of a job into pieces; empty without a noise curve or a known end.

    The predicted noise scale at progress x is ``curve(x) * level ** sqrt(now / x)``, in examples,
    with x at the middle of each piece. ``now`` is the present progress in useful examples. ``level
    = phi(now) / curve(now)`` is the measured noise scale phi divided by the earlier run's. The
    exponent lets the level fade, because an early deviation says little about the end of a run.
    """
    curve, noise, remaining = job.noise_curve, job.noise, job.remaining_examples
    if curve is None or noise is None or remaining is None or not is_usable(noise):
        return ()
    if not np.isfinite(remaining) or remaining <= 0:
        return ()
    now, total = job.progress_examples, job.progress_examples + remaining
    ends = [end for end in (share * total for share in _PIECE_ENDS) if end > now + 1e-9 * total]
    starts = [now, *ends[:-1]]
    positions = np.array(
        [now, *((start + end) / 2 for start, end in zip(starts, ends, strict=True))]
    )
    curve_examples = _curve_at(curve, positions)
    level = np.clip(noise.examples / curve_examples[0], _LEAST_LEVEL, _MOST_LEVEL)
    examples = curve_examples[1:] * level ** np.sqrt(now / positions[1:])
    return tuple(
        Piece(end - start, _with_examples(noise, float(piece_examples)))
        for start, end, piece_examples in zip(starts, ends, examples, strict=True)
    )


def _curve_at(curve: NoiseCurve, progress_examples: FloatArray) -> FloatArray:
    """Interpolate the curve on logarithmic scales; beyond its ends return its end values."""
    log_progress = np.log(np.maximum(progress_examples, 1.0))
    points = np.log(np.maximum(curve.progress_examples, 1.0))
    levels = np.log(np.maximum(curve.noise_examples, _SMALLEST_EXAMPLES))
    noise_examples: FloatArray = np.exp(np.interp(log_progress, points, levels))
    return noise_examples


def _with_examples(noise: NoiseScale, examples: float) -> NoiseScale:
    """Return a noise scale of `examples` with the uncertainty of `noise`."""
    factor = max(examples, _SMALLEST_EXAMPLES) / noise.examples
    return NoiseScale(
        noise.initial_batch,
        noise.gradient_square,
        noise.gradient_variance * factor,
        noise.log_standard_deviation,
    )
