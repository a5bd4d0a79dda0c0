"""Intervals that say 90 % must hold about 90 % of what comes, or money is bet on nothing."""

from __future__ import annotations

import numpy as np
import pytest

from autoscaler.domain.goodput import BatchBounds, NoiseScale
from autoscaler.goodput.batch_search import goodput_table
from autoscaler.goodput.coordinates import to_theta
from autoscaler.goodput.draws import noise_draws
from autoscaler.goodput.fit import fit
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.likelihood import SIZE_LOG_DEVIATION
from autoscaler.goodput.prediction import goodput_draws, size_log_errors
from autoscaler.goodput.prior import prior_for
from autoscaler.goodput.throughput import FloatArray
from tests.goodput.cases import ALL_SIZES, KIND, by_data, noisy

PRIOR = prior_for(KIND, 100_000_000, 6e9, seconds_per_example=0.01)
BOUNDS = BatchBounds(initial=32, maximum=8192, device_maximum=256, adaptive=True)
DEVICE_BATCH = 32


def _covered(draws: FloatArray, truth: FloatArray) -> list[bool]:
    """Return the coverage by the n + 1 rule; other quantiles of 32 draws are too narrow."""
    low, high = np.quantile(draws, [0.05, 0.95], axis=0, method="weibull")
    covered: list[bool] = ((low <= truth) & (truth <= high)).tolist()
    return covered


@pytest.mark.parametrize(("sizes_measured", "batches_measured"), [(1, 1), (2, 3), (4, 2)])
def test_nine_of_ten_intervals_at_unmeasured_sizes_hold_the_truth(
    sizes_measured: int, batches_measured: int
) -> None:
    of_steps: list[bool] = []
    of_goodput: list[bool] = []
    for seed in range(100):
        generator = np.random.default_rng(seed)
        theta = to_theta(PRIOR.mean + PRIOR.spread @ generator.standard_normal(7))
        order = generator.permutation(len(ALL_SIZES))
        measured = [ALL_SIZES[i] for i in order[:sizes_measured]]
        rest = np.array([ALL_SIZES[i] for i in order[sizes_measured:]])
        batches = generator.choice([8, 16, 32, 64, 128], batches_measured, replace=False)
        model = fit(noisy(by_data(theta), measured, batches.tolist(), generator), PRIOR)
        error = SIZE_LOG_DEVIATION * generator.normal(size=len(rest))
        draws = predictor_of(model.draws).step_seconds(*rest.T, DEVICE_BATCH, 0)
        truth = by_data(theta).step_seconds(*rest.T, DEVICE_BATCH, 0) * np.exp(error)
        of_steps += _covered(draws * np.exp(size_log_errors(model, *rest.T)), truth)

        examples = float(np.exp(generator.normal(7.0, 1.0)))
        seen = examples * float(np.exp(0.3 * generator.normal()))
        noise = NoiseScale(
            32, gradient_square=32.0, gradient_variance=seen, log_standard_deviation=0.3
        )
        goodput = goodput_draws(model, noise_draws(noise, 32), BOUNDS, *rest.T)
        (best,) = goodput_table(by_data(theta[None]), examples, BOUNDS, *rest.T)
        of_goodput += _covered(goodput, best * np.exp(-error))
    assert 0.85 <= np.mean(of_steps) <= 0.95
    assert 0.85 <= np.mean(of_goodput) <= 0.95
