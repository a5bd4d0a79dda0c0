"""Sizes whose step times are far off the formula, such as beyond a slow network link."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.fit import fit
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.prediction import prediction_error, size_log_errors
from autoscaler.goodput.prior import prior_for, prior_from_kind
from tests.goodput.cases import ALL_SIZES, KIND, PLANTED, clean, theta_of

PRIOR = prior_for(KIND, 100_000_000, 2e9, seconds_per_example=0.01)
ONE_DEVICE_SIZES = ((1, 1), (2, 2), (4, 4))
FOUR_DEVICE_SIZES = ((1, 4), (2, 8), (4, 16))


def _with_cliff(
    sizes: Sequence[tuple[int, int]],
    batches: Sequence[int],
    slow: tuple[int, int],
    factor: float,
    steps: int = 100,
) -> list[StepObservation]:
    """Return exact observations, but `slow` synchronises so that its steps take `factor` times."""
    return [
        replace(
            observation,
            step_seconds=observation.step_seconds * factor,
            sync_seconds=observation.sync_seconds + observation.step_seconds * (factor - 1.0),
            steps=steps,
        )
        if (observation.instances, observation.devices) == slow
        else replace(observation, steps=steps)
        for observation in clean(PLANTED, sizes, batches)
    ]


def _believed_ratio(model: ThroughputModel, size: tuple[int, int], batch: int) -> float:
    """Return the believed step time of a size over the one without a cliff."""
    seconds = predictor_of(model.draws).step_seconds(*size, batch, 0)
    log_seconds = np.log(seconds) + size_log_errors(model, [size[0]], [size[1]])[:, 0]
    expected = float(predictor_of(PLANTED).step_seconds(*size, batch, 0))
    return math.exp(float(log_seconds.mean())) / expected


@pytest.mark.parametrize("sizes", [ONE_DEVICE_SIZES, FOUR_DEVICE_SIZES])
@pytest.mark.parametrize("steps", [3, 100, 1000])
@pytest.mark.parametrize("factor", [3.0, 5.0, 10.0])
def test_a_cliff_is_believed_after_one_batch(
    factor: float, steps: int, sizes: tuple[tuple[int, int], ...]
) -> None:
    model = fit(_with_cliff(sizes, [32], sizes[-1], factor, steps), PRIOR)
    assert _believed_ratio(model, sizes[-1], 32) == pytest.approx(factor, rel=0.10)
    for size in sizes[:-1]:
        assert _believed_ratio(model, size, 32) == pytest.approx(1.0, abs=0.10)


@pytest.mark.parametrize("batches", [[16, 64], [8, 16, 32, 64, 128]])
@pytest.mark.parametrize("factor", [3.0, 10.0])
def test_a_cliff_is_believed_after_several_batches(factor: float, batches: list[int]) -> None:
    model = fit(_with_cliff(FOUR_DEVICE_SIZES, batches, (4, 16), factor), PRIOR)
    for batch in batches:
        assert _believed_ratio(model, (4, 16), batch) == pytest.approx(factor, rel=0.10)
        assert _believed_ratio(model, (2, 8), batch) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("factor", [3.0, 10.0])
def test_a_cliff_leaves_the_parameters_as_they_were(factor: float) -> None:
    expected = fit(clean(PLANTED, ALL_SIZES, [8, 64]), PRIOR)
    actual = fit(_with_cliff(ALL_SIZES, [8, 64], (4, 16), factor), PRIOR)
    assert theta_of(actual.point) == pytest.approx(theta_of(expected.point), rel=0.10)


def test_one_slow_batch_of_a_size_is_no_cliff() -> None:
    """The other batches of the size agree with the formula, so the slow one is the outlier."""
    observations = clean(PLANTED, ALL_SIZES, [8, 32, 64])
    slow = replace(observations[-1], step_seconds=10.0 * observations[-1].step_seconds)
    model = fit([*observations[:-1], slow], PRIOR)
    assert _believed_ratio(model, ALL_SIZES[-1], 32) == pytest.approx(1.0, abs=0.10)


def test_a_faster_size_is_believed_too() -> None:
    fast = [
        replace(observation, step_seconds=observation.step_seconds / 3.0, sync_seconds=0.0)
        if observation.instances == 4
        else observation
        for observation in clean(PLANTED, FOUR_DEVICE_SIZES, [32])
    ]
    model = fit(fast, PRIOR)
    assert _believed_ratio(model, (4, 16), 32) == pytest.approx(1.0 / 3.0, rel=0.15)


def test_a_size_that_became_slower_is_believed_without_blaming_the_parameters() -> None:
    """Its batches of before are kept in an earlier era."""
    observations = clean(PLANTED, ALL_SIZES, [8, 32, 64])
    drifted = [
        replace(observation, step_seconds=3.0 * observation.step_seconds)
        if observation.device_batch == 64
        else replace(observation, era=-1)
        for observation in observations
        if observation.instances == 2
    ]
    drifted += [observation for observation in observations if observation.instances != 2]
    expected, actual = fit(observations, PRIOR), fit(drifted, PRIOR)
    for size in ((2, 2), (2, 4), (2, 8)):
        assert _believed_ratio(actual, size, 64) == pytest.approx(3.0, rel=0.10)
    assert _believed_ratio(actual, (4, 16), 64) == pytest.approx(1.0, abs=0.10)
    assert theta_of(actual.point) == pytest.approx(theta_of(expected.point), rel=0.20)
    assert actual.measured == expected.measured


def test_earlier_eras_are_no_error_of_the_model() -> None:
    observations = clean(PLANTED, ALL_SIZES, [8, 64])
    earlier = replace(
        observations[-1],
        device_batch=32,
        step_seconds=observations[-1].step_seconds / 5.0,
        sync_seconds=0.0,
        era=-1,
    )
    model = fit([*observations, earlier], PRIOR)
    assert prediction_error(model, [*observations, earlier]) < 0.05


@pytest.mark.parametrize("sizes", [ONE_DEVICE_SIZES, FOUR_DEVICE_SIZES])
@pytest.mark.parametrize("factor", [3.0, 10.0])
def test_one_report_does_not_condemn_a_size(
    factor: float, sizes: tuple[tuple[int, int], ...]
) -> None:
    """Its first step may have been slow for once, so that it counts as not measured yet."""
    observations = _with_cliff(sizes, [32], sizes[-1], factor, steps=3)
    once = [*observations[:-1], replace(observations[-1], is_settled=False)]
    model = fit(once, PRIOR)
    assert model == fit(observations[:-1], PRIOR)
    assert _believed_ratio(model, sizes[-1], 32) < 1.3
    assert fit(observations, PRIOR).measured == frozenset(sizes)


def test_one_report_of_a_factor_below_two_is_believed() -> None:
    observations = _with_cliff(FOUR_DEVICE_SIZES, [32], (4, 16), 1.6)
    once = [*observations[:-1], replace(observations[-1], is_settled=False)]
    assert fit(once, PRIOR) == fit(observations, PRIOR)


def test_the_first_report_of_all_is_believed() -> None:
    slow = replace(clean(PLANTED, [(1, 1)], [32])[0], step_seconds=50.0, is_settled=False)
    assert fit([slow], PRIOR).measured == {(1, 1)}


def test_the_first_report_on_another_kind_takes_a_second_if_it_is_far_slower() -> None:
    first = fit(clean(PLANTED, ONE_DEVICE_SIZES, [8, 64]), PRIOR)
    prior = prior_from_kind(first, "a100", speed_ratio=4.0)
    slow = replace(clean(PLANTED, [(1, 1)], [32], kind="a100")[0], is_settled=False)
    assert fit([slow], prior).measured == frozenset()
    assert fit([replace(slow, is_settled=True)], prior).measured == {(1, 1)}


def test_a_single_report_of_an_earlier_era_raises_no_doubt() -> None:
    observations = _with_cliff(FOUR_DEVICE_SIZES, [16, 32], (4, 16), 3.0)
    earlier = clean(PLANTED, [(4, 16)], [64])[0]
    single = replace(earlier, era=-1, is_settled=False)
    model = fit([*observations, single], PRIOR)
    assert model.measured == frozenset(FOUR_DEVICE_SIZES)
    assert _believed_ratio(model, (4, 16), 32) == pytest.approx(3.0, rel=0.10)
