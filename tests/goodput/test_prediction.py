from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import SizeError, ThroughputModel
from autoscaler.goodput.batch_search import goodput_table
from autoscaler.goodput.fit import fit
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.prediction import (
    goodput_draws,
    log_errors,
    prediction_error,
    size_log_errors,
)
from autoscaler.goodput.prior import prior_for
from tests.goodput.cases import ALL_SIZES, KIND, PLANTED, clean, observation

BOUNDS = BatchBounds(initial=32, maximum=2048, device_maximum=128, adaptive=True)
MODEL = ThroughputModel(
    device_kind=KIND,
    point=PLANTED,
    draws=(PLANTED,) * 32,
    measured=frozenset({(1, 1), (1, 4)}),
    size_errors=(SizeError(1, 4, (0.2,) * 32),),
)


def test_measured_sizes_err_as_measured_and_others_by_a_tenth() -> None:
    errors = size_log_errors(MODEL, np.array([1, 1, 1, 2]), np.array([1, 4, 8, 8]))
    assert errors.shape == (32, 4)
    assert errors[:, 0] == pytest.approx(0.0)
    assert errors[:, 1] == pytest.approx(0.2)
    assert errors[:, 2:].std(axis=0) == pytest.approx([0.1, 0.1])
    assert errors[:, 2:].mean(axis=0) == pytest.approx([0.0, 0.0], abs=1e-9)
    assert not np.allclose(errors[:, 2], errors[:, 3])


def test_the_error_of_a_size_depends_on_that_size_alone() -> None:
    together = size_log_errors(MODEL, np.array([1, 2, 4]), np.array([8, 8, 16]))
    alone = size_log_errors(MODEL, np.array([2.0]), np.array([8.0]))
    assert together[:, 1] == pytest.approx(alone[:, 0])


def test_goodput_is_the_table_with_the_errors_of_the_sizes() -> None:
    sizes = np.array([1, 1, 2]), np.array([1, 4, 8])
    noise = np.linspace(50, 500, 32)
    table = goodput_table(predictor_of(MODEL.draws), noise, BOUNDS, *sizes)
    expected = table * np.exp(-size_log_errors(MODEL, *sizes))
    assert goodput_draws(MODEL, noise, BOUNDS, *sizes) == pytest.approx(expected)


def test_goodput_is_of_the_batches_that_the_kind_of_device_bears() -> None:
    small = replace(BOUNDS, device_maximum=8)
    by_kind = replace(small, kind_maxima=((KIND, 128), ("other", 2)))
    of_small, of_kind = (goodput_draws(MODEL, 0.0, one, [1], [1]) for one in (small, by_kind))
    assert (of_kind > 1.2 * of_small).all()
    assert by_kind.on(KIND) == BOUNDS
    assert by_kind.on("third") == replace(BOUNDS, device_maximum=8)
    with pytest.raises(ValueError, match="at least 1"):
        replace(BOUNDS, kind_maxima=(("other", 0),))


def test_one_draw_is_the_point_estimate() -> None:
    certain = replace(MODEL, draws=(PLANTED,), size_errors=())
    sizes = np.array([1, 2]), np.array([8, 8])
    table = goodput_table(predictor_of([PLANTED]), 100.0, BOUNDS, *sizes)
    assert goodput_draws(certain, 100.0, BOUNDS, *sizes) == pytest.approx(table)


def test_log_errors_are_of_the_point_and_the_size() -> None:
    (exact,) = clean(PLANTED, [(1, 4)], [64])
    late = replace(exact, step_seconds=exact.step_seconds * 1.5)
    errors = log_errors(MODEL, [exact, late])
    assert errors == pytest.approx([-0.2, math.log(1.5) - 0.2])


def test_the_prediction_error_tells_a_changed_machine() -> None:
    observations = clean(PLANTED, ALL_SIZES, [16, 64])
    model = fit(observations, prior_for(KIND, 100_000_000, 2e9))
    slower = [
        replace(o, step_seconds=1.3 * o.step_seconds, sync_seconds=1.3 * o.sync_seconds)
        for o in observations
    ]
    assert prediction_error(model, observations) < 0.03
    assert prediction_error(model, slower) == pytest.approx(math.log(1.3), abs=0.03)
    assert prediction_error(model, []) == 0.0


def test_a_sawtooth_is_predicted_at_sizes_where_it_was_not_measured() -> None:
    saw = {8: 1.0, 12: 1.6, 16: 1.1, 24: 1.5, 32: 1.0, 48: 1.4, 64: 1.0}

    def longer(each: StepObservation) -> float:
        return each.compute_seconds * saw[each.device_batch]

    def measured(sizes: Sequence[tuple[int, int]]) -> list[StepObservation]:
        return [
            replace(each, step_seconds=each.sync_seconds + longer(each))
            for each in clean(PLANTED, sizes, list(saw))
        ]

    model = fit(measured([(1, 1), (1, 2), (1, 4)]), prior_for(KIND, 100_000_000, 2e9))
    smooth = replace(model, batch_errors=None)
    elsewhere = measured([(1, 8)])
    with_saw, without = (log_errors(each, elsewhere).std() for each in (model, smooth))
    assert with_saw < 0.5 * without


def test_the_prediction_error_refuses_what_can_not_be() -> None:
    with pytest.raises(ValueError, match=r"^step_seconds="):
        prediction_error(MODEL, [observation((1, 1, 8, 0), math.nan)])
