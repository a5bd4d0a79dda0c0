from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from autoscaler.training.gradients.noise import GradientSquares, NoiseTracker


def _round(rng: np.random.Generator, mean: np.ndarray, sigma: float, ranks: int, local: int):
    """Squares of one sampled step: gradients are `mean` plus noise of known covariance."""
    noise = rng.normal(size=(ranks, mean.size)) * sigma / math.sqrt(local)
    gradients = mean + noise
    big = gradients.mean(axis=0)
    return GradientSquares(
        samples=1,
        smalls=ranks,
        small_square=float((gradients**2).sum()),
        small_inverse=ranks / local,
        big_square=float((big**2).sum()),
        big_inverse=1 / (local * ranks),
    )


@pytest.mark.parametrize("ranks", [2, 8])
def test_recovers_a_known_noise_scale(ranks: int) -> None:
    rng = np.random.default_rng(1)
    mean = rng.normal(size=2000) / math.sqrt(2000)
    tracker = NoiseTracker(half_life_samples=1e9)
    for _ in range(400):
        tracker.update(_round(rng, mean, 0.2, ranks, local=16))
    true_examples = 0.04 * 2000 / float(mean @ mean)
    noise = tracker.noise_scale(initial_batch=32)
    assert noise is not None
    assert noise.examples == pytest.approx(true_examples, rel=0.1)
    assert abs(math.log(noise.examples / true_examples)) < 3 * noise.log_standard_deviation


@pytest.mark.parametrize("seed", range(4))
def test_the_long_gradients_of_the_first_steps_are_soon_forgotten(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=2000) / math.sqrt(2000)
    tracker = NoiseTracker()
    for sample in range(100):
        longer = 10.0 if sample < 5 else 1.0
        tracker.update(_round(rng, longer * mean, 0.2, ranks=2, local=16))
    noise = tracker.noise_scale(initial_batch=32)
    assert noise is not None
    assert noise.examples == pytest.approx(0.04 * 2000 / float(mean @ mean), rel=0.3)


def test_standard_deviation_is_calibrated() -> None:
    inside = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        mean = np.full(300, 0.1)
        tracker = NoiseTracker(half_life_samples=1e9)
        for _ in range(60):
            tracker.update(_round(rng, mean, 0.3, ranks=2, local=8))
        noise = tracker.noise_scale(8)
        assert noise is not None
        true_examples = 0.09 * 300 / float(mean @ mean)
        error = abs(math.log(noise.examples / true_examples))
        inside += error < 1.645 * noise.log_standard_deviation
    assert 82 <= inside <= 98


def test_pure_noise_never_looks_like_a_noise_scale_of_zero() -> None:
    """Published code clamps |G|^2 after averaging: then every batch seems efficient."""
    rng = np.random.default_rng(3)
    tracker = NoiseTracker()
    for _ in range(200):
        tracker.update(_round(rng, np.zeros(500), 0.5, ranks=2, local=4))
        noise = tracker.noise_scale(8)
        assert noise is None or noise.examples > 20 * 8
        assert noise is None or noise.log_standard_deviation > 0.3


def test_a_gradient_lost_in_the_noise_is_its_mean_above_zero() -> None:
    """The estimate of |G|^2 is kept positive as a normal variable that is cut off at zero."""
    for square in (-2.0, -0.5, 0.0, 1.0, 5.0, 40.0):
        tracker = NoiseTracker(samples=100, weight=100, weight_square=100)
        tracker.mean_square, tracker.mean_trace = square, 50.0
        tracker.variance_square = 100.0
        noise = tracker.noise_scale(8)
        assert noise is not None
        cut = scipy.stats.truncnorm(-square, math.inf, loc=square)
        assert noise.gradient_square == pytest.approx(cut.mean(), rel=1e-6)
        assert noise.log_standard_deviation == pytest.approx(cut.std() / cut.mean(), rel=1e-5)


def test_a_gradient_square_far_below_zero_gives_no_noise_scale() -> None:
    tracker = NoiseTracker(samples=100, weight=100, weight_square=100)
    tracker.mean_square, tracker.mean_trace, tracker.variance_square = -4.0, 50.0, 100.0
    assert tracker.noise_scale(8) is None


def test_non_finite_gradients_are_passed_over() -> None:
    tracker = NoiseTracker()
    tracker.update(GradientSquares(1, 2, math.inf, 0.5, 1.0, 0.25))
    tracker.update(GradientSquares(1, 2, math.nan, 0.5, 1.0, 0.25))
    assert tracker.samples == 0


def test_equal_sizes_tell_nothing() -> None:
    assert GradientSquares(1, 1, 2.0, 0.25, 2.0, 0.25).estimate() is None
