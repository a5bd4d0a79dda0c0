from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autoscaler.market.hazards import (
    AGES_SECONDS,
    Hazard,
    ObservedLifetime,
    posterior_hazard,
    prior_hazard,
)

HOUR = 3600.0
CONSTANT = Hazard((1 / HOUR,) * len(AGES_SECONDS))
seconds = st.floats(1.0, 1e6)
hazards = st.tuples(*[st.floats(0.0, 1e-2)] * len(AGES_SECONDS)).map(Hazard)


def test_a_constant_hazard_is_an_exponential_lifetime() -> None:
    assert CONSTANT.survival(500.0, HOUR) == pytest.approx(math.exp(-1))
    assert CONSTANT.mean_seconds(123.0, 4 * HOUR) == pytest.approx(HOUR * (1 - math.exp(-4)))
    assert CONSTANT.ends_per_second(9000.0, 4 * HOUR) == pytest.approx(1 / HOUR)


def test_what_never_ends_is_there_all_the_time() -> None:
    never = Hazard((0.0,) * len(AGES_SECONDS))
    assert never.mean_seconds(0.0, HOUR) == HOUR
    assert never.ends_per_second(0.0, HOUR) == 0.0


def test_the_usual_hazard_has_the_mean_that_is_told_and_falls_with_age() -> None:
    rare = prior_hazard(0.01 / HOUR)
    assert rare.ends_per_second(0.0, 4 * HOUR) * HOUR == pytest.approx(0.01, rel=0.05)
    assert rare.ends_per_second(8 * HOUR, 4 * HOUR) < rare.ends_per_second(0.0, 4 * HOUR) / 2


@example(Hazard((0.0, 0.0, 0.0, 0.0, 5e-324)), 1.0, 28800.5, 1.0)
@given(hazards, seconds, seconds, seconds)
def test_survival_goes_on_where_it_was(
    hazard: Hazard, age: float, first: float, second: float
) -> None:
    whole = hazard.survival(age, first + second)
    parts = hazard.survival(age, first) * hazard.survival(age + first, second)
    assert whole == pytest.approx(parts, abs=1e-9)
    assert 0.0 <= hazard.mean_seconds(age, first) <= first * (1 + 1e-9)


def test_without_lives_the_prior_is_believed() -> None:
    assert posterior_hazard([], CONSTANT) == CONSTANT


def test_ends_count_in_the_class_of_their_age_and_time_lived_in_all_before() -> None:
    lives = [
        ObservedLifetime(1200.0, True),
        ObservedLifetime(1800.0, False),
        ObservedLifetime(300.0, True, weight=0.5),
    ]
    found = posterior_hazard(lives, CONSTANT)
    young = (1 + 0.5) / (HOUR + 600 + 600 + 150)
    older = (1 + 1) / (HOUR + 600 + 1200)
    assert found.per_second == pytest.approx((young, older, *CONSTANT.per_second[2:]))


def test_many_lives_overrule_the_prior() -> None:
    lives = [ObservedLifetime(0.25 * HOUR, True)] * 400
    found = posterior_hazard(lives, CONSTANT)
    assert found.mean_seconds(0.0, HOUR) == pytest.approx(0.25 * HOUR, rel=0.4)
    assert found.per_second[0] < CONSTANT.per_second[0] / 10


def test_a_prior_of_nothing_stays() -> None:
    nothing = Hazard((0.0,) * len(AGES_SECONDS))
    assert posterior_hazard([ObservedLifetime(60.0, True)], nothing) == nothing


def test_optimism_is_for_what_was_rarely_seen() -> None:
    few, many = [ObservedLifetime(HOUR, True)], [ObservedLifetime(HOUR, True)] * 100

    def share(lives: list[ObservedLifetime]) -> float:
        plain, hopeful = (posterior_hazard(lives, CONSTANT, c).per_second[2] for c in (0.0, 0.5))
        return hopeful / plain

    assert share([]) < share(few) < share(many) < 1
