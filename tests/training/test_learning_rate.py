from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from autoscaler.training.steps.learning_rate import (
    RULES,
    LearningRateInputs,
    rule_named,
    scaled_groups,
)

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


def _shrunk(optimizer: torch.optim.Optimizer, scale: float, steps: int, rule: str) -> None:
    (parameter,) = optimizer.param_groups[0]["params"]
    for _ in range(steps):
        parameter.grad = torch.zeros_like(parameter)
        inputs = LearningRateInputs(scale, 1.0, epochs=99.0, warmup_epochs=1.0)
        with scaled_groups(optimizer, RULES[rule], inputs):
            optimizer.step()


@pytest.mark.parametrize("scale", [4.0, 2.5, 16.0])
@pytest.mark.parametrize("rule", ["sqrt", "legw"])
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (torch.optim.AdamW, {"lr": 1e-3, "weight_decay": 0.01}),
        (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.5}),
        (torch.optim.NAdam, {"lr": 0.01, "decoupled_weight_decay": True, "weight_decay": 0.1}),
        (torch.optim.Muon, {"lr": 0.01, "weight_decay": 0.1}),
    ],
)
def test_as_many_examples_decay_a_weight_as_much_at_any_batch(
    kind, settings: dict[str, float], rule: str, scale: float
) -> None:
    weights = []
    for at_scale, steps in ((1.0, 80), (scale, round(80 / scale))):
        parameter = nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
        optimizer = kind([parameter], **settings)
        _shrunk(optimizer, at_scale, steps, rule)
        weights.append(float(parameter.detach()[0, 0]))
        group = optimizer.param_groups[0]
        assert (group["lr"], group["weight_decay"]) == (settings["lr"], settings["weight_decay"])
    assert weights[1] == pytest.approx(weights[0], abs=1e-6)
    assert weights[0] < 0.9999


@pytest.mark.parametrize("rule", ["adascale", "linear", "none"])
def test_rules_that_keep_decay_by_progress_leave_it_alone(rule: str) -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.1)
    with scaled_groups(optimizer, RULES[rule], GROWN):
        assert optimizer.param_groups[0]["weight_decay"] == 0.1


def test_decay_that_is_part_of_the_gradient_stays() -> None:
    parameter = nn.Parameter(torch.ones(1))
    for optimizer in (
        torch.optim.SGD([parameter], lr=0.1, weight_decay=0.1),
        torch.optim.Adam([parameter], lr=0.1, weight_decay=0.1),
    ):
        with scaled_groups(optimizer, RULES["sqrt"], GROWN):
            assert optimizer.param_groups[0]["weight_decay"] == 0.1
            assert optimizer.param_groups[0]["lr"] == pytest.approx(0.2)
        assert optimizer.param_groups[0]["lr"] == 0.1


def test_a_learning_rate_of_zero_decays_nothing() -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([parameter], lr=0.0, weight_decay=0.1)
    _shrunk(optimizer, 4.0, 3, "sqrt")
    assert float(parameter.detach()) == 1.0


def test_the_decay_is_the_scripts_own_again_after_a_step_that_raises() -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.1)
    with pytest.raises(RuntimeError), scaled_groups(optimizer, RULES["sqrt"], GROWN):
        raise RuntimeError
    assert optimizer.param_groups[0]["lr"] == optimizer.param_groups[0]["weight_decay"] == 0.1
