"""Gradient noise scale, from gradients that training computes anyway.

For gradients over a small and a large number of examples, b and B (McCandlish et al. 2018,
appendix A.1)::

    E|g_b|^2 = |G|^2 + tr(Sigma)/b          E|g_B|^2 = |G|^2 + tr(Sigma)/B

Two sampled squares give unbiased estimates of |G|^2 and tr(Sigma). The small gradients are those
of the ranks before they are averaged; a lone rank splits its batch now and then and takes the
first part. Both estimates are averaged over time before they are divided: the mean of a ratio
would be biased. The averages forget the first samples soon. Gradients of a job's first steps can
be ten times as long as later ones, and would dominate |G|^2 for thousands of steps.

|G|^2 can't be below zero, though its unbiased estimate can. The reported value is its mean given
that (a normal truncated at zero). A gradient lost in the noise then gives a noise scale as large
as the measurement can resolve, and no larger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autoscaler.domain.goodput import NoiseScale

# An estimate of |G|^2 further below zero is rejected: training is not stationary enough.
_LOWEST_STANDARD_ERRORS = -3.0
_MIN_SAMPLES = 10.0
# A sample's weight is halved once this fraction of all samples has followed.
_HALF_LIFE_SHARE = 0.35


@dataclass(frozen=True, slots=True)
class GradientSquares:
    """Sums over the sampled steps of one round, of one replica or of all.

    `small_square` sums |g_b|^2 and `small_inverse` sums 1/b over `smalls` small gradients;
    `big_square` sums |g_B|^2 and `big_inverse` 1/B over `samples` steps.
    """

    samples: float = 0.0
    smalls: float = 0.0
    small_square: float = 0.0
    small_inverse: float = 0.0
    big_square: float = 0.0
    big_inverse: float = 0.0

    def estimate(self) -> tuple[float, float] | None:
        """Return unbiased (|G|^2, tr(Sigma)); None if the sums can't separate the two."""
        if self.samples < 1 or self.smalls < 1:
            return None
        small = self.small_square / self.smalls
        big = self.big_square / self.samples
        small_inverse = self.small_inverse / self.smalls
        big_inverse = self.big_inverse / self.samples
        if not math.isfinite(small + big) or small_inverse <= big_inverse * (1 + 1e-9):
            return None
        trace = (small - big) / (small_inverse - big_inverse)
        return big - trace * big_inverse, trace


@dataclass(slots=True)
class NoiseTracker:
    """Moving averages of |G|^2 and tr(Sigma), and their precision.

    The state is plain floats and the same on every rank. A sample's weight is halved after at most
    `half_life_samples` sampled steps; sooner while there are few samples, so that the first ones
    do not last. Variances and covariance are those of one sample. The two estimates err in
    opposite directions, so the error of their ratio needs both.
    """

    half_life_samples: float = 200.0
    samples: float = 0.0
    weight: float = 0.0
    weight_square: float = 0.0
    mean_square: float = 0.0
    mean_trace: float = 0.0
    variance_square: float = 0.0
    variance_trace: float = 0.0
    covariance: float = 0.0

    def update(self, squares: GradientSquares) -> None:
        """Add the samples of one round."""
        estimate = squares.estimate()
        if estimate is None:
            return
        square, trace = estimate
        count = squares.samples
        self.samples += count
        half_life = min(self.half_life_samples, _HALF_LIFE_SHARE * self.samples)
        decay = 0.5 ** (count / half_life)
        self.weight = decay * self.weight + count
        self.weight_square = decay * decay * self.weight_square + count
        share = count / self.weight
        past_square, past_trace = self.mean_square, self.mean_trace
        self.mean_square += share * (square - past_square)
        self.mean_trace += share * (trace - past_trace)
        deviation_square = count * (square - past_square) * (square - self.mean_square)
        deviation_trace = count * (trace - past_trace) * (trace - self.mean_trace)
        self.variance_square += share * (deviation_square - self.variance_square)
        self.variance_trace += share * (deviation_trace - self.variance_trace)
        deviation_product = count * (square - past_square) * (trace - self.mean_trace)
        self.covariance += share * (deviation_product - self.covariance)

    def noise_scale(self, initial_batch: int) -> NoiseScale | None:
        """Return the estimate so far; None from few samples or without a plausible estimate."""
        effective = self.weight * self.weight / max(self.weight_square, 1e-300)
        if self.samples < _MIN_SAMPLES or self.mean_trace <= 0:
            return None
        square_error = math.sqrt(max(self.variance_square, 0.0) / effective)
        if self.mean_square <= _LOWEST_STANDARD_ERRORS * square_error:
            return None
        square, square_variance = _truncated_moments(self.mean_square, square_error)
        trace = self.mean_trace
        variance = (
            square_variance / square**2
            + self.variance_trace / effective / trace**2
            - 2 * self.covariance / effective / (square * trace)
        )
        return NoiseScale(
            initial_batch=initial_batch,
            gradient_square=square,
            gradient_variance=trace / initial_batch,
            log_standard_deviation=min(math.sqrt(max(variance, 0.0)), 2.0),
        )


def _truncated_moments(mean: float, deviation: float) -> tuple[float, float]:
    """Return mean and variance of a normal variable, given that it is above zero."""
    if deviation <= 0 or mean > 30 * deviation:
        return mean, deviation**2
    distance = mean / deviation
    density = math.exp(-distance * distance / 2) / math.sqrt(2 * math.pi)
    pull = density / (0.5 * math.erfc(-distance / math.sqrt(2)))
    return mean + deviation * pull, deviation**2 * (1 - distance * pull - pull * pull)
