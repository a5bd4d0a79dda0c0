"""Optimizers of a script, each with its scaling rule for the learning rate."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from autoscaler.training.steps.learning_rate import (
    NO_RULE,
    RULES,
    LearningRateInputs,
    LearningRateRule,
    default_rule,
    rule_named,
    scaled_groups,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScaledOptimizer:
    """Optimizer whose learning rate follows the batch size by `rule`."""

    optimizer: torch.optim.Optimizer
    rule: LearningRateRule

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Parameters of all groups."""
        return [
            parameter for group in self.optimizer.param_groups for parameter in group["params"]
        ]

    def move(self, inputs: LearningRateInputs) -> None:
        """Step the optimizer, with learning rates scaled for `inputs`."""
        with scaled_groups(self.optimizer, self.rule, inputs):
            self.optimizer.step()

    def learning_rate(self, inputs: LearningRateInputs) -> float:
        """Return the first group's learning rate, scaled for `inputs`."""
        return float(self.optimizer.param_groups[0]["lr"]) * self.rule(inputs)


def movers_of(
    optimizers: Iterable[torch.optim.Optimizer], lr_rule: str | None, may_grow: bool
) -> list[ScaledOptimizer]:
    """Return the optimizers with `lr_rule`, or with the default rules of their kinds if None.

    If a kind has no default rule and the batch `may_grow`, this logs a warning.
    """
    movers = []
    for optimizer in optimizers:
        name = lr_rule or default_rule(optimizer)
        if name is None and may_grow and os.environ.get("LOCAL_RANK", "0") == "0":
            _log.warning(
                "%s: no rule is known for its learning rate, which stays as it is when the batch "
                "grows; session(..., lr_rule=...) names one: %s",
                type(optimizer).__name__,
                ", ".join(RULES),
            )
        movers.append(ScaledOptimizer(optimizer, rule_named(name or NO_RULE)))
    return movers
