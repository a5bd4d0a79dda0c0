from __future__ import annotations

import math

import numpy as np
import pytest

from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.coordinates import gamma_slope, to_coordinates, to_theta
from autoscaler.goodput.fit import fit
from autoscaler.goodput.formulas import parameters_of
from autoscaler.goodput.prediction import goodput_draws
from autoscaler.goodput.prior import prior_for, prior_from_kind
from tests.goodput.cases import PLANTED, by_data, clean, observation, theta_of

PRIOR = prior_for("t4", parameter_bytes=100_000_000, network_bytes_per_second=1e9)


def test_medians_are_of_the_network_and_the_bytes() -> None:
    (median,) = parameters_of(by_data(to_theta(PRIOR.mean)))
    assert median.alpha_across_seconds == pytest.approx(0.4)
    assert median.alpha_within_seconds == pytest.approx(0.04)
    assert median.beta_across_seconds_per_doubling == pytest.approx(0.12)
    assert median.gamma == pytest.approx(1.5)


def test_log_deviations_are_those_of_the_rule() -> None:
    known = prior_for("t4", 100_000_000, 1e9, seconds_per_example=0.002)
    deviations = np.sqrt(np.diag(known.covariance))
    assert math.exp(known.mean[1]) == pytest.approx(0.002)
    assert deviations[1] == pytest.approx(0.7)
    assert deviations[[2, 4]] == pytest.approx([0.8, 0.8])
    growth = np.zeros(7)
    growth[[3, 2]] = 1.0, -1.0
    assert growth @ known.covariance @ growth == pytest.approx(1.0)
    assert deviations[6] * gamma_slope(1.5) / 1.5 == pytest.approx(0.3)
    assert PRIOR.covariance[1, 1] > known.covariance[1, 1]


def test_coordinates_go_there_and_back() -> None:
    theta = theta_of([PLANTED])
    assert to_theta(to_coordinates(theta)) == pytest.approx(theta)
    extreme = to_theta(np.full(7, 700.0))
    assert np.isfinite(extreme).all()
    assert extreme[6] == 10.0
    assert np.isfinite(to_coordinates(np.array([0.0] * 6 + [1.0]))).all()


def test_another_kind_scales_the_same_way() -> None:
    measured = fit(clean(PLANTED, [(1, 1), (1, 4), (2, 8)], [16, 64]), PRIOR)
    prior = prior_from_kind(measured, "a100", speed_ratio=4.0)
    (median,) = parameters_of(by_data(to_theta(prior.mean)))
    assert theta_of(median)[:6] == pytest.approx(theta_of(measured.point)[:6] / 4.0)
    assert median.gamma == pytest.approx(measured.point.gamma)
    assert np.sqrt(np.diag(prior.covariance))[:6].min() > 0.8


def test_a_draw_of_another_kind_belongs_to_the_draw_it_comes_from() -> None:
    measured = fit(clean(PLANTED, [(1, 1)], [16, 64]), PRIOR)
    other = fit([], prior_from_kind(measured, "a100", speed_ratio=4.0))
    here, there = (_log_sync(model) for model in (measured, other))
    assert np.corrcoef(here, there)[0, 1] > 0.4


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("parameter_bytes", (0, 1e9, None)),
        ("network_bytes_per_second", (1, math.inf, None)),
        ("seconds_per_example", (1, 1e9, -1.0)),
    ],
)
def test_what_is_not_positive_is_refused_by_name(
    name: str, arguments: tuple[int, float, float | None]
) -> None:
    with pytest.raises(ValueError, match=f"^{name}="):
        prior_for("t4", *arguments)


def test_a_speed_ratio_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^speed_ratio="):
        prior_from_kind(fit([], PRIOR), "a100", speed_ratio=math.nan)


def _log_sync(model: ThroughputModel) -> np.ndarray:
    return np.log([draw.alpha_within_seconds for draw in model.draws])


def test_adapters_are_expected_to_train_faster_on_two_instances_and_whole_weights_not() -> None:
    """LoRA synchronises 20 MB of adapters, not 14 GB: a step of 2 s, a network of 1.25 GB/s."""
    bounds = BatchBounds(initial=64, maximum=64, device_maximum=64, adaptive=False)
    gains = []
    for parameter_bytes in (20_000_000, 14_000_000_000):
        prior = prior_for("t4", parameter_bytes, 1.25e9)
        alone = [observation((1, 1, 64, 0), 2.0, 0.0, kind="t4")]
        one, two = goodput_draws(fit(alone, prior), 64.0, bounds, [1, 2], [1, 2]).mean(axis=0)
        gains.append(two / one)
    assert gains[0] > 1.3
    assert gains[1] < 0.3
