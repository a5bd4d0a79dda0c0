from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.coordinates import to_coordinates, to_theta
from autoscaler.goodput.fit import fit
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.prediction import log_errors, size_log_errors
from autoscaler.goodput.prior import prior_for, prior_from_kind
from autoscaler.goodput.throughput import FloatArray
from tests.goodput.cases import (
    ALL_SIZES,
    KIND,
    PLANTED,
    by_data,
    clean,
    noisy,
    observation,
    theta_of,
)

PRIOR = prior_for(KIND, 100_000_000, 2e9, seconds_per_example=0.01)


def _coordinates(model: ThroughputModel) -> FloatArray:
    return to_coordinates(theta_of(model.draws))


def test_planted_parameters_come_back() -> None:
    model = fit(clean(PLANTED, ALL_SIZES, [1, 4, 16, 64, 256]), PRIOR)
    assert theta_of(model.point) == pytest.approx(theta_of(PLANTED), rel=0.05)
    assert model.measured == frozenset(ALL_SIZES)


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_what_was_measured_without_noise_is_predicted(seed: int) -> None:
    """Also where the parameters are not identified: a sync that hides behind computing."""
    generator = np.random.default_rng(seed)
    theta = to_theta(PRIOR.mean + PRIOR.spread @ generator.standard_normal(7))
    observations = clean(theta, ALL_SIZES, [8, 32, 128])
    model = fit(observations, PRIOR)
    assert np.abs(log_errors(model, observations)).max() < 0.10
    assert np.median(np.abs(log_errors(model, observations))) < 0.03


def test_without_observations_the_draws_are_the_priors() -> None:
    model = fit([], PRIOR)
    coordinates = _coordinates(model)
    assert to_coordinates(theta_of(model.point)) == pytest.approx(PRIOR.mean)
    assert coordinates.mean(axis=0) == pytest.approx(PRIOR.mean)
    assert np.cov(coordinates.T, bias=True) == pytest.approx(PRIOR.covariance)
    assert model.measured == frozenset()
    assert model.size_errors == ()


def test_what_nothing_was_measured_of_stays_as_it_was() -> None:
    before, after = (
        _coordinates(fit([], PRIOR)),
        _coordinates(fit(clean(PLANTED, [(1, 1), (1, 2), (1, 4)], [8, 64]), PRIOR)),
    )
    assert after[:, 2:4] == pytest.approx(before[:, 2:4], abs=1e-5)
    assert after[:, :2].std(axis=0).max() < 0.5 * before[:, :2].std(axis=0).min()


def test_one_batch_size_leaves_the_split_of_computing_open_but_not_its_sum() -> None:
    model = fit(clean(PLANTED, [(1, 1)], [64]), PRIOR)
    seconds = predictor_of(model.draws).step_seconds(1, 1, np.array([64, 4]), 0)
    at_64, at_4 = (np.log(seconds) + size_log_errors(model, [1], [1])).std(axis=0)
    assert at_64 < 0.1
    assert at_4 > 3 * at_64


def test_the_same_input_gives_the_same_model() -> None:
    observations = clean(PLANTED, ALL_SIZES[:4], [8, 64])
    assert fit(observations, PRIOR) == fit(list(observations), PRIOR)
    assert fit(observations, PRIOR, seed=1).draws != fit(observations, PRIOR).draws
    assert fit(observations, PRIOR, seed=1).point == fit(observations, PRIOR).point


@settings(max_examples=10)
@given(st.permutations(clean(PLANTED, ALL_SIZES[:5], [8, 64])))
def test_order_does_not_matter(observations: list[StepObservation]) -> None:
    expected = fit(clean(PLANTED, ALL_SIZES[:5], [8, 64]), PRIOR)
    assert _coordinates(fit(observations, PRIOR)) == pytest.approx(
        _coordinates(expected), abs=1e-3
    )


def test_draws_move_little_when_measurements_move_little() -> None:
    observations = clean(PLANTED, ALL_SIZES[:6], [8, 64])
    moved = [replace(o, step_seconds=o.step_seconds * 1.001) for o in observations]
    assert _coordinates(fit(moved, PRIOR)) == pytest.approx(
        _coordinates(fit(observations, PRIOR)), abs=0.05
    )


def test_an_outlier_moves_little() -> None:
    observations = clean(PLANTED, ALL_SIZES, [8, 64])
    spoilt = [*observations, observation((2, 8, 32, 0), 20.0, 1.0)]
    expected, actual = fit(observations, PRIOR), fit(spoilt, PRIOR)
    assert np.abs(log_errors(actual, observations)).max() < 0.05
    assert theta_of(actual.point)[:2] == pytest.approx(theta_of(expected.point)[:2], rel=0.05)


def test_a_thousand_steps_of_one_size_do_not_drown_ten_others() -> None:
    others = clean(PLANTED, ALL_SIZES[1:], [32])
    others = [replace(o, steps=20) for o in others]
    loud = [observation((1, 1, 32, 0), 0.2, steps=10**6)]
    with_loud = fit(others + loud, PRIOR)
    assert np.median(np.abs(log_errors(with_loud, others))) < 0.05


def test_a_hundred_reports_of_one_size_do_not_drown_ten_others() -> None:
    others = clean(PLANTED, ALL_SIZES, [32])
    slow = replace(others[-1], step_seconds=1.2 * others[-1].step_seconds)
    expected = fit([*others, slow], PRIOR)
    actual = fit([*others, *[slow] * 100], PRIOR)
    assert np.abs(log_errors(actual, others[:-1])).max() < 0.08
    assert theta_of(actual.point)[:2] == pytest.approx(theta_of(expected.point)[:2], rel=0.12)


def test_a_measured_size_is_predicted_as_measured() -> None:
    """The formula gives one time; that size is 25 % off it, as two instances often are."""
    observations = clean(PLANTED, ALL_SIZES, [8, 32, 128])
    observations = [
        replace(o, step_seconds=1.25 * o.step_seconds, sync_seconds=o.sync_seconds)
        if (o.instances, o.devices) == (2, 8)
        else o
        for o in observations
    ]
    model = fit(observations, PRIOR)
    (error,) = [e for e in model.size_errors if (e.instances, e.devices) == (2, 8)]
    assert np.mean(error.log_errors) == pytest.approx(math.log(1.25), abs=0.08)
    assert np.abs(log_errors(model, observations)).max() < 0.08


def test_draws_of_a_fitted_kind_keep_to_the_draws_they_inherit() -> None:
    first = fit(clean(PLANTED, [(1, 1)], [8, 64]), PRIOR)
    prior = prior_from_kind(first, "a100", speed_ratio=4.0)
    faster = theta_of(PLANTED).copy()
    faster[:6] /= 4.0
    second = fit(clean(faster, [(1, 1)], [8, 64], kind="a100"), prior)
    logs = [np.log([d.alpha_across_seconds for d in m.draws]) for m in (first, second)]
    assert np.corrcoef(*logs)[0, 1] > 0.4
    assert theta_of(second.point)[:2] == pytest.approx(faster[:2], rel=0.1)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_noisy_or_few_observations_still_give_finite_draws(seed: int, count: int) -> None:
    generator = np.random.default_rng(seed)
    theta = to_theta(PRIOR.mean + 2 * PRIOR.spread @ generator.standard_normal(7))
    sizes = [ALL_SIZES[i] for i in generator.permutation(len(ALL_SIZES))[:count]]
    model = fit(noisy(by_data(theta), sizes, [8], generator), PRIOR)
    drawn = theta_of(model.draws)
    assert drawn.shape == (32, 7)
    assert np.isfinite(by_data(drawn).step_seconds(8, 64, 512, 3)).all()


def test_a_machine_far_from_the_prior_is_believed() -> None:
    theta = theta_of(PLANTED).copy()
    theta[:6] *= 1000.0
    observations = clean(theta, ALL_SIZES, [8, 32, 128])
    assert np.abs(log_errors(fit(observations, PRIOR), observations)).max() < 0.1


def test_another_kind_of_device_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^device_kind=a100"):
        fit([observation((1, 1, 8, 0), 0.1, kind="a100")], PRIOR)


def test_draws_that_do_not_match_the_inherited_are_refused() -> None:
    prior = prior_from_kind(fit([], PRIOR), "a100", speed_ratio=2.0)
    with pytest.raises(ValueError, match=r"^draws=16"):
        fit([], prior, draws=16)
