"""What is ahead of a job whose program has run before: the noise scale piece by piece."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.domain.goodput import NoiseCurve, NoiseScale
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.goodput.draws import is_usable
from autoscaler.goodput.throughput import FloatArray

# Where pieces end, in shares of all progress: fixed, so that a change that is planned for the end
# of a piece comes nearer, and close together at first, where noise scales grow fastest.
_ENDS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1.0)
# An earlier run gives the curve its shape. How far today's level may be from it: what is measured
# at another batch size lies elsewhere.
_LEAST_LEVEL, _MOST_LEVEL = 0.1, 10.0
_SMALLEST_EXAMPLES = 1e-9


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the remaining work, in useful examples, and the noise scale that it will have."""

    work: float
    noise: NoiseScale


def pieces_ahead(job: JobSnapshot) -> tuple[Piece, ...]:
    """The rest of the job in pieces; none where there is no curve, or no end is known.

    The noise scale at progress x is ``curve(x) * level ** sqrt(now / x)``, with the curve at the
    middle of each piece and ``level = phi(now) / curve(now)``: how far a run is from the earlier
    one at its beginning says little of its end.
    """
    curve, noise, remaining = job.noise_curve, job.noise, job.remaining_examples
    if curve is None or noise is None or remaining is None or not is_usable(noise):
        return ()
    if not np.isfinite(remaining) or remaining <= 0:
        return ()
    now, total = job.progress_examples, job.progress_examples + remaining
    ends = [end for end in (share * total for share in _ENDS) if end > now + 1e-9 * total]
    starts = [now, *ends[:-1]]
    at = np.array([now, *((start + end) / 2 for start, end in zip(starts, ends, strict=True))])
    found = _curve_at(curve, at)
    level = np.clip(noise.examples / found[0], _LEAST_LEVEL, _MOST_LEVEL)
    examples = found[1:] * level ** np.sqrt(now / at[1:])
    return tuple(
        Piece(end - start, _with_examples(noise, float(there)))
        for start, end, there in zip(starts, ends, examples, strict=True)
    )


def _curve_at(curve: NoiseCurve, progress_examples: FloatArray) -> FloatArray:
    """The curve between its points, on logarithmic scales; beyond them that of the nearest."""
    at = np.log(np.maximum(progress_examples, 1.0))
    points = np.log(np.maximum(curve.progress_examples, 1.0))
    levels = np.log(np.maximum(curve.noise_examples, _SMALLEST_EXAMPLES))
    found: FloatArray = np.exp(np.interp(at, points, levels))
    return found


def _with_examples(noise: NoiseScale, examples: float) -> NoiseScale:
    """Another noise scale, known as surely."""
    factor = max(examples, _SMALLEST_EXAMPLES) / noise.examples
    return NoiseScale(
        noise.initial_batch,
        noise.gradient_square,
        noise.gradient_variance * factor,
        noise.log_standard_deviation,
    )
