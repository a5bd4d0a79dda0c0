"""The throughput models beside the seven-parameter one: what they say, and that it is learnt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autoscaler.domain.goodput import (
    BatchBounds,
    LocalityParameters,
    PipelineParameters,
    ShardedParameters,
    StepParameters,
)
from autoscaler.domain.job import ParallelismSpec
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.batch_search import best_batch, goodput_table
from autoscaler.goodput.coordinates import to_coordinates, to_theta
from autoscaler.goodput.fit import fit
from autoscaler.goodput.formulas import (
    DATA_PARALLEL,
    formula_for,
    formula_of,
    parameters_of,
    predictor_of,
)
from autoscaler.goodput.likelihood import linearise, measurements
from autoscaler.goodput.prediction import goodput_draws
from autoscaler.goodput.prior import ThroughputPrior, prior_for, prior_from_kind
from autoscaler.goodput.throughput import FloatArray, Formula, Predictor
from tests.goodput.cases import ALL_SIZES, KIND, PLANTED, by_data, clean, noisy

PIPELINE = PipelineParameters(
    0.004, 0.001, 0.002, 0.2, 0.08, 0.1, 0.03, 1.6, stages=4, microbatches=16
)
LOCALITY = LocalityParameters(0.02, 0.004, 0.1, 0.03, 0.05, 0.02, 0.6, 0.2, 1.6, near_instances=2)
SHARDED = ShardedParameters(0.02, 0.004, 0.03, 0.15, 1.0, 0.2, 0.08, 0.1, 0.03, 1.6, shard=4)
BOUNDS = BatchBounds(initial=64, maximum=4096, device_maximum=64, adaptive=True)
# Sizes that replicas of four devices can be made of, the first ones within one instance.
PIPELINE_SIZES = [(1, 4), (1, 8), (2, 4), (2, 8), (2, 16), (3, 12), (4, 16), (4, 32), (8, 64)]
LOCALITY_SIZES = [(1, 1), (1, 4), (2, 2), (2, 8), (3, 12), (4, 16), (6, 24), (8, 32), (16, 64)]
# Copies on four devices: of one instance, or of a gang of two or four.
SHARDED_SIZES = [(1, 4), (1, 8), (2, 4), (2, 8), (2, 16), (4, 4), (4, 8), (4, 16), (8, 64)]
SIZES = {
    PipelineParameters: PIPELINE_SIZES,
    LocalityParameters: LOCALITY_SIZES,
    ShardedParameters: SHARDED_SIZES,
}


def prior_of(parameters: StepParameters) -> ThroughputPrior:
    formula = formula_of(parameters)
    return prior_for(KIND, 100_000_000, 2e9, seconds_per_example=0.01, formula=formula)


@pytest.mark.parametrize(
    ("place", "turns", "microbatch", "handover", "sync"),
    [
        ((1, 4, 16), 3 * (3 + 16), 4, 0.0, 0.0),
        ((1, 4, 2), 3 * (3 + 8), 1, 0.0, 0.0),
        ((1, 8, 16), 3 * (3 + 16), 4, 0.0, 0.1),
        ((2, 4, 16), 3 * (3 + 16), 4, 0.002, 0.0),
        ((2, 8, 16), 3 * (3 + 16), 4, 0.0, 0.2),
        ((2, 16, 16), 3 * (3 + 16), 4, 0.0, 0.2 + 0.08),
        ((4, 8, 16), 3 * (3 + 16), 4, 0.002, 0.2),
    ],
)
def test_a_pipeline_is_the_formula_written_out(
    place: tuple[int, int, int], turns: int, microbatch: int, handover: float, sync: float
) -> None:
    compute = turns * (0.004 + 0.001 * microbatch + handover)
    expected = 2 * compute + (compute**1.6 + sync**1.6) ** (1 / 1.6)
    predictor = predictor_of(PIPELINE)
    assert float(predictor.compute_seconds(*place)) == pytest.approx(compute)
    assert float(predictor.sync_seconds(*place[:2])) == pytest.approx(sync)
    assert float(predictor.step_seconds(*place, 2)) == pytest.approx(expected)


def test_the_published_iteration_is_one_of_its_cases() -> None:
    """Sia's GPT on 8 stages with 48 micro-batches of 1: 3 * (7 + 48) * forward + sync."""
    gpt = PipelineParameters(0.05, 0.0, 0.0, 0.0, 0.0, 0.7, 0.0, 1.0, stages=8, microbatches=48)
    seconds = predictor_of(gpt).step_seconds(1, 16, 48 // 8, 0)
    assert float(seconds) == pytest.approx(3 * (7 + 48) * 0.05 + 0.7)


@pytest.mark.parametrize(
    ("place", "sync"),
    [
        ((1, 1), 0.0),
        ((1, 4), 0.05 + 0.02),
        ((2, 8), 0.1 + 2 * 0.03),
        ((3, 8), 0.1 + 2 * 0.03 + 0.6),
        ((4, 8), 0.1 + 2 * 0.03 + 0.6),
        ((8, 8), 0.1 + 2 * 0.03 + 0.6 + 0.2),
    ],
)
def test_far_instances_are_the_formula_written_out(place: tuple[int, int], sync: float) -> None:
    assert float(predictor_of(LOCALITY).sync_seconds(*place)) == pytest.approx(sync)


def test_where_all_lie_together_the_third_level_is_nothing() -> None:
    near = replace(LOCALITY, near_instances=100)
    seven = by_data(np.delete(predictor_of(near).theta, [6, 7]))
    sizes = np.array(ALL_SIZES).T
    assert predictor_of(near).step_seconds(*sizes, 8, 1) == pytest.approx(
        seven.step_seconds(*sizes, 8, 1)
    )


@pytest.mark.parametrize(
    ("place", "gather", "sync"),
    [
        ((1, 4, 8), 0.03, 0.0),
        ((1, 8, 8), 0.03, 0.1),
        ((2, 8, 8), 0.03, 0.2),
        ((2, 16, 8), 0.03, 0.2 + 0.08),
        ((2, 4, 8), 0.15, 0.0),
        ((4, 8, 8), 0.15, 0.2 / 2),
        ((8, 8, 8), 0.15, 0.2 / 4),
    ],
)
def test_copies_of_several_devices_are_the_formula_written_out(
    place: tuple[int, int, int], gather: float, sync: float
) -> None:
    compute = 0.02 + 0.004 * 8
    micro = (compute**2 + gather**2) ** 0.5
    expected = 2 * micro + (micro**1.6 + sync**1.6) ** (1 / 1.6)
    predictor = predictor_of(SHARDED)
    assert float(predictor.compute_seconds(*place)) == pytest.approx(micro)
    assert float(predictor.sync_seconds(*place[:2])) == pytest.approx(sync)
    assert float(predictor.step_seconds(*place, 2)) == pytest.approx(expected)


def test_seven_parameters_do_not_say_what_gathers_do() -> None:
    """Every micro-step gathers the model, so accumulation hides less than without a shard."""
    sharded, seven, truth = [], [], predictor_of(replace(SHARDED, gather_across_seconds=0.6))
    for seed in range(10):
        generator = np.random.default_rng(seed)
        measured, rest = _split(SHARDED_SIZES, generator)
        observations = noisy(truth, measured, [8, 16, 64], generator)
        sharded.append(_errors(fit(observations, prior_of(SHARDED)), truth, rest))
        seven.append(_errors(fit(observations, prior_of(PLANTED)), truth, rest))
    assert np.mean(seven) > 1.5 * np.mean(sharded)


def test_instances_of_a_gang_are_lost_together() -> None:
    instances, devices = np.array([1, 2, 2, 4, 8]), np.array([8, 16, 4, 8, 8])
    assert formula_of(SHARDED).lost_together(instances, devices).tolist() == [1, 1, 2, 2, 4]
    assert DATA_PARALLEL.lost_together(instances, devices).tolist() == [1] * 5


def test_a_faster_kind_overlaps_as_much() -> None:
    known = fit(clean(SHARDED, SHARDED_SIZES, [8, 64]), prior_of(SHARDED))
    other = fit([], prior_from_kind(known, "a100", speed_ratio=4.0))
    assert isinstance(other.point, ShardedParameters)
    assert isinstance(known.point, ShardedParameters)
    assert other.point.shard == 4
    assert other.point.gather_overlap == pytest.approx(known.point.gather_overlap)
    sizes = np.array(SHARDED_SIZES).T
    assert predictor_of(other.point).step_seconds(*sizes, 8, 1) == pytest.approx(
        predictor_of(known.point).step_seconds(*sizes, 8, 1) / 4.0
    )


@pytest.mark.parametrize("planted", [PIPELINE, LOCALITY, SHARDED])
@pytest.mark.parametrize("gamma_coordinate", [-6.0, 3.0])
def test_the_jacobian_is_the_derivative(planted: StepParameters, gamma_coordinate: float) -> None:
    predictor = predictor_of(planted)
    data = measurements(clean(planted, PIPELINE_SIZES, [2, 8, 64], 1), predictor.formula)
    at = to_coordinates(predictor.theta)
    at[-1] = gamma_coordinate
    _, jacobian = linearise(data, predictor.formula, at)
    steps = 1e-6 * np.eye(len(at))
    differences = [
        linearise(data, predictor.formula, at - step)[0]
        - linearise(data, predictor.formula, at + step)[0]
        for step in steps
    ]
    expected = np.stack(differences, axis=-1) / 2e-6
    assert jacobian == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("planted", [PIPELINE, LOCALITY, SHARDED])
def test_planted_parameters_come_back(planted: StepParameters) -> None:
    sizes = SIZES[type(planted)]
    model = fit(clean(planted, sizes, [4, 8, 16, 64]), prior_of(planted))
    found, truth = predictor_of(model.point), predictor_of(planted)
    assert found.formula == truth.formula
    assert found.theta[:3] == pytest.approx(truth.theta[:3], rel=0.08)
    assert np.abs(_errors(model, truth, np.array(sizes))).max() < 0.04


@pytest.mark.parametrize("planted", [PIPELINE, LOCALITY, SHARDED])
def test_goodput_is_learnt_from_noisy_times(planted: StepParameters) -> None:
    """Bound the median error at sizes that were not measured, for jobs drawn from the prior."""
    prior, sizes = prior_of(planted), SIZES[type(planted)]
    errors = []
    for seed in range(20):
        generator = np.random.default_rng(seed)
        coordinates = prior.mean + prior.spread @ generator.standard_normal(len(prior.mean))
        truth = Predictor(prior.formula, to_theta(coordinates))
        measured, rest = _split(sizes, generator)
        model = fit(noisy(truth, measured, [8, 16, 64], generator), prior)
        errors.append(_errors(model, truth, rest))
    assert np.median(errors) < 0.08


def test_two_levels_do_not_say_what_three_do() -> None:
    three, two, truth = [], [], predictor_of(LOCALITY)
    for seed in range(10):
        generator = np.random.default_rng(seed)
        measured, rest = _split(LOCALITY_SIZES, generator)
        observations = noisy(truth, measured, [8, 16, 64], generator)
        three.append(_errors(fit(observations, prior_of(LOCALITY)), truth, rest))
        two.append(_errors(fit(observations, prior_of(PLANTED)), truth, rest))
    assert np.mean(two) > 1.5 * np.mean(three)


def _split(
    sizes: Sequence[tuple[int, int]], generator: np.random.Generator
) -> tuple[list[tuple[int, int]], FloatArray]:
    """Six sizes to measure, and the rest (n, 2)."""
    order = generator.permutation(len(sizes))
    return [sizes[i] for i in order[:6]], np.array([sizes[i] for i in order[6:]])


def _errors(model: ThroughputModel, truth: Predictor, sizes: FloatArray) -> FloatArray:
    point = predictor_of((model.point,))
    true = goodput_table(Predictor(truth.formula, truth.theta[None]), 500.0, BOUNDS, *sizes.T)
    errors: FloatArray = np.abs(np.log(goodput_table(point, 500.0, BOUNDS, *sizes.T) / true))
    return errors[0]


@pytest.mark.parametrize("planted", [PIPELINE, LOCALITY, SHARDED])
def test_without_observations_the_draws_are_the_priors(planted: StepParameters) -> None:
    prior = prior_of(planted)
    model = fit([], prior)
    drawn = to_coordinates(predictor_of(model.draws).theta)
    assert to_coordinates(predictor_of(model.point).theta) == pytest.approx(prior.mean)
    assert drawn.mean(axis=0) == pytest.approx(prior.mean)
    assert drawn.std(axis=0) == pytest.approx(np.sqrt(np.diag(prior.covariance)), rel=0.5)


def test_another_kind_of_device_inherits_the_model() -> None:
    known = fit(clean(PIPELINE, PIPELINE_SIZES, [8, 64]), prior_of(PIPELINE))
    other = fit([], prior_from_kind(known, "a100", speed_ratio=4.0))
    assert isinstance(other.point, PipelineParameters)
    assert other.point.stages == 4
    sizes = np.array(PIPELINE_SIZES).T
    assert predictor_of(other.point).step_seconds(*sizes, 8, 0) == pytest.approx(
        predictor_of(known.point).step_seconds(*sizes, 8, 0) / 4.0
    )


def test_one_replica_is_one_measurement() -> None:
    """Alone it waits for nobody, however many devices it is spread over."""
    one, two = clean(PIPELINE, [(1, 4), (1, 8)], [16])
    data = measurements([one, two], formula_of(PIPELINE))
    assert data.waits.tolist() == [False, True]


def test_devices_that_no_whole_replica_is_made_of_earn_nothing() -> None:
    model = ThroughputModel(KIND, PIPELINE, (PIPELINE,) * 2)
    devices = np.array([1, 3, 4, 6, 8, 12])
    goodput = goodput_draws(model, 500.0, BOUNDS, np.ones(6), devices)
    assert (goodput[0] > 0).tolist() == [False, False, True, False, True, True]
    assert best_batch(PIPELINE, 500.0, BOUNDS, 1, 8).goodput > 0
    with pytest.raises(ValueError, match=r"^devices=6"):
        best_batch(PIPELINE, 500.0, BOUNDS, 1, 6)


@pytest.mark.parametrize(
    ("spec", "formula"),
    [
        (ParallelismSpec(), DATA_PARALLEL),
        (ParallelismSpec(pipeline=4, microbatches=16), formula_of(PIPELINE)),
        (ParallelismSpec(near_instances=2), formula_of(LOCALITY)),
        (ParallelismSpec(shard=4), formula_of(SHARDED)),
    ],
)
def test_a_jobs_parallelism_says_which_model_it_is_judged_by(
    spec: ParallelismSpec, formula: Formula
) -> None:
    assert formula_for(spec) == formula


@pytest.mark.parametrize("planted", [PLANTED, PIPELINE, LOCALITY, SHARDED])
def test_arrays_hold_the_parameters(planted: StepParameters) -> None:
    assert parameters_of(predictor_of([planted] * 2)) == (planted, planted)
    assert len(formula_of(planted).names) == predictor_of(planted).theta.size


@pytest.mark.parametrize(
    "values",
    [{"pipeline": 0}, {"microbatches": 0}, {"near_instances": 0}],
)
def test_a_parallelism_of_nothing_is_refused(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ParallelismSpec(**values)


def test_a_pipeline_has_no_third_level() -> None:
    with pytest.raises(ValueError, match="leave one of the two out"):
        ParallelismSpec(pipeline=2, near_instances=4)
