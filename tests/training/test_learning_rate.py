from __future__ import annotations

import math

import pytest

from autoscaler.training.learning_rate import RULES, LearningRateInputs, rule_named

GROWN = LearningRateInputs(scale=4.0, gain=2.5, epochs=2.0, warmup_epochs=1.0)


@pytest.mark.parametrize(
    ("name", "factor"),
    [("adascale", 2.5), ("sqrt", 2.0), ("linear", 4.0), ("legw", 1.0), ("none", 1.0)],
)
def test_factors(name: str, factor: float) -> None:
    assert rule_named(name)(GROWN) == pytest.approx(factor)


@pytest.mark.parametrize("name", RULES)
def test_at_the_initial_batch_the_learning_rate_is_the_users(name: str) -> None:
    assert rule_named(name)(LearningRateInputs(1.0, 1.0, epochs=9.0, warmup_epochs=2.0)) == 1.0


def test_legw_warms_up_over_scale_times_the_epochs() -> None:
    factors = [
        rule_named("legw")(LearningRateInputs(4.0, 1.0, epochs, 1.0)) for epochs in (1.0, 4.0, 9.0)
    ]
    assert factors == pytest.approx([math.sqrt(4) / 4, 2.0, 2.0])


def test_an_unknown_rule_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"lr_rule='cosine'.*adascale, sqrt, linear, legw, none"):
        rule_named("cosine")
