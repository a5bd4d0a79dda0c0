from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from autoscaler.domain.goodput import (
    BatchBounds,
    LocalityParameters,
    PipelineParameters,
    StepParameters,
    ThroughputParameters,
)
from autoscaler.domain.snapshot import BatchErrors, SizeError, ThroughputModel
from autoscaler.goodput import many
from autoscaler.goodput.prediction import goodput_draws
from autoscaler.goodput.throughput import FloatArray

BOUNDS = BatchBounds(64, 2048, 96, adaptive=True)
INSTANCES = np.array([1, 1, 1, 2, 3, 4, 8, 16])
DEVICES = np.array([1, 2, 4, 8, 6, 16, 32, 64])
PLAIN = ThroughputParameters(0.01, 0.004, 0.05, 0.02, 0.01, 0.005, 2.0)
FAR = LocalityParameters(0.01, 0.004, 0.05, 0.02, 0.01, 0.005, 0.1, 0.02, 2.0, near_instances=2)
STAGED = PipelineParameters(
    0.01, 0.004, 0.002, 0.05, 0.02, 0.01, 0.005, 2.0, stages=2, microbatches=4
)


def model_of(point: StepParameters, seed: int) -> ThroughputModel:
    """Draws that differ in how long synchronisation takes; (1, 2) was measured, with errors."""
    generator = np.random.default_rng(seed)
    draws = []
    for factor in generator.lognormal(0.0, 0.7, 6).tolist():
        values = {name: getattr(point, name) for name in point.__slots__}
        values["alpha_across_seconds"] *= factor
        draws.append(type(point)(**values))
    return ThroughputModel(
        "card",
        point,
        tuple(draws),
        frozenset({(1, 2), (5, 5)}),
        (SizeError(1, 2, tuple(generator.normal(0.0, 0.1, 6).tolist())),),
        BatchErrors((8, 64), (0.2, -0.1)) if seed % 2 else None,
    )


def drawn_of(
    models: Sequence[ThroughputModel],
    noise: FloatArray,
    bounds: Sequence[BatchBounds] = (BOUNDS,) * 4,
) -> many.DrawnModels:
    which = many.Bounds(bounds, np.arange(len(models)))
    return many.DrawnModels(models, many.theta_of(models, noise.shape[1]), noise, which)


@pytest.mark.parametrize("point", [PLAIN, FAR, STAGED])
def test_many_jobs_have_the_goodput_that_each_has(
    point: StepParameters, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(many, "_BLOCK", 2)
    monkeypatch.setattr(many, "_BATCHES", 1000)
    many._few.cache_clear()
    request.addfinalizer(many._few.cache_clear)
    bounds = (BOUNDS, BatchBounds(32, 512, 96, adaptive=True), BatchBounds(100, 100, 8, False))
    models = [model_of(point, seed) for seed in range(3)]
    noise = np.random.default_rng(1).lognormal(6.0, 1.0, (3, 6))
    runs = np.flatnonzero(DEVICES % 2 == 0) if point is STAGED else np.arange(len(DEVICES))
    chosen = np.stack([runs[:-1], runs[1:], runs[:-1]])
    places = many.Places("card", INSTANCES, DEVICES)
    found = many.seconds_per_example(drawn_of(models, noise, bounds), places, chosen)
    for row, (one, own) in enumerate(zip(models, chosen, strict=True)):
        expected = goodput_draws(one, noise[row], bounds[row], INSTANCES[own], DEVICES[own])
        assert found[row] == pytest.approx(1.0 / expected, rel=1e-5)


def test_few_batches_lose_little() -> None:
    models = [model_of(PLAIN, seed) for seed in range(4)]
    noise = np.random.default_rng(2).lognormal(6.0, 1.5, (4, 6))
    places = many.Places("card", INSTANCES, DEVICES)
    every = np.tile(np.arange(len(DEVICES)), (4, 1))
    found = many.seconds_per_example(drawn_of(models, noise), places, every)
    for row, one in enumerate(models):
        least = 1.0 / goodput_draws(one, noise[row], BOUNDS, INSTANCES, DEVICES)
        assert (found[row] >= least * (1 - 1e-5)).all()
        assert np.mean(found[row] / least) < 1.01


def test_the_points_say_what_one_instance_less_leaves() -> None:
    one = model_of(PLAIN, 0)
    places = many.Places("card", INSTANCES, DEVICES)
    found = many.one_less([one], np.array([500.0]), many.Bounds([BOUNDS], np.array([0])), places)
    assert not found[0, INSTANCES == 1].any()
    assert (found <= 1.0).all()
    centre = ThroughputModel("card", PLAIN, (PLAIN,))
    each = DEVICES // INSTANCES
    several = INSTANCES > 1
    less = goodput_draws(centre, [500.0], BOUNDS, INSTANCES - several, DEVICES - several * each)
    whole = goodput_draws(centre, [500.0], BOUNDS, INSTANCES, DEVICES)
    assert found[0, several] == pytest.approx((less / whole)[0, several], abs=0.05)
