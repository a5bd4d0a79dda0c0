from __future__ import annotations

import numpy as np
import pytest

from autoscaler.economics.studies.siblings import (
    SpeedMeasurements,
    StudySizes,
    hyper_parameter_features,
    sibling_speeds,
)

DEVICES = np.array([1.0, 2.0, 4.0, 8.0])
SIZES = StudySizes(
    DEVICES, np.zeros(4, dtype=np.int64), np.log(DEVICES / (1 + 0.1 * (DEVICES - 1)))
)


def measured(rows: list[tuple[int, int, float]]) -> SpeedMeasurements:
    trial, size, rate = (list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 3
    return SpeedMeasurements(
        np.array(trial, dtype=np.int64), np.array(size, dtype=np.int64), np.log(np.array(rate))
    )


def true_rate(batch: float) -> np.ndarray:
    """The larger the batch, the faster and the better it scales."""
    serial = 0.5 / batch
    return batch**0.5 * DEVICES / (1 + serial * (DEVICES - 1))


BATCHES = np.geomspace(1.0, 64.0, 13)


def study(known: int) -> tuple[np.ndarray, SpeedMeasurements]:
    """Features of all trials, and every other one measured on all sizes."""
    rows = [
        (trial, size, float(true_rate(BATCHES[trial])[size]))
        for trial in list(range(0, 13, 2))[:known]
        for size in range(4)
    ]
    return hyper_parameter_features(BATCHES[:, None]), measured(rows)


def test_features_are_centred_and_of_unit_width() -> None:
    values = np.array([[1.0, 5.0, 3.0], [100.0, 5.0, np.nan], [10.0, 5.0, 7.0]])
    features = hyper_parameter_features(values)
    assert features.mean(axis=0) == pytest.approx([0.0, 0.0, 0.0])
    assert features[:, 0] == pytest.approx(np.array([-1.0, 1.0, 0.0]) * 1.5**0.5)
    assert (features[:, 1] == 0).all()
    assert features[1, 2] == 0


def test_without_a_measurement_it_is_the_typical() -> None:
    features, _ = study(0)
    model = sibling_speeds(features, SIZES, measured([]))
    assert model.mean == pytest.approx(np.tile(SIZES.typical, (13, 1)))


def test_a_trial_between_its_siblings_is_like_them() -> None:
    features, seen = study(7)
    model = sibling_speeds(features, SIZES, seen)
    truth = np.log(np.array([true_rate(batch) for batch in BATCHES]))
    blind = np.abs(SIZES.typical - truth)[1::2]
    told = np.abs(model.mean - truth)[1::2]
    assert told.max() < 0.25
    assert told.mean() < 0.2 * blind.mean()


def test_more_siblings_tell_more() -> None:
    few, many = (sibling_speeds(study(n)[0], SIZES, study(n)[1]).sd[1::2] for n in (1, 7))
    assert (many < few).all()


def test_what_a_trial_measured_itself_counts_most() -> None:
    features, seen = study(7)
    model = sibling_speeds(features, SIZES, seen)
    assert (model.sd[0] < model.sd[1]).all()
    assert model.mean[0] == pytest.approx(np.log(true_rate(BATCHES[0])), abs=0.1)


def test_one_size_tells_of_the_others() -> None:
    """The level is common to all sizes of a trial; what scaling adds is less known."""
    features, _ = study(0)
    model = sibling_speeds(features, SIZES, measured([(4, 0, 10.0)]))
    assert model.mean[4, 3] - SIZES.typical[3] == pytest.approx(np.log(10.0), rel=0.1)
    assert model.sd[4, 0] < model.sd[4, 1] < model.sd[4, 3]


def test_draws_are_the_same_for_a_seed_and_never_scale_better_than_before() -> None:
    features, seen = study(3)
    model = sibling_speeds(features, SIZES, seen)
    draws = model.draws(9, seed=3)
    assert draws.shape == (9, 13, 4)
    assert np.array_equal(draws, model.draws(9, seed=3))
    each = draws / DEVICES
    assert (np.diff(each, axis=2) <= 1e-9 * each[:, :, :-1]).all()
