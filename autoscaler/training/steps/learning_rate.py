"""Scaling of the learning rate with the batch size.

Each rule returns the factor of the script's learning rate at a batch that is `scale` times larger
than the initial batch. The schedule over time stays the script's.

Decoupled weight decay, as of AdamW, shrinks weights by learning rate x decay in each step. A rule
that multiplies the learning rate by sqrt(scale) shrinks them too little per example, as there are
`scale` times fewer steps. Such a rule therefore scales the decay, too, so that a number of
examples shrinks a weight equally at any batch (Malladi et al. 2022, the scaling rule of AdamW:
decay x sqrt(scale)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from autoscaler.training.gradients.preconditioner import is_adam


@dataclass(frozen=True, slots=True)
class LearningRateInputs:
    """Inputs of a learning-rate rule.

    Attributes:
        scale: batch size divided by the initial batch size.
        gain: AdaScale's r_t, in [1, scale].
        epochs: useful passes through the data so far.
        warmup_epochs: LEGW's warm-up at the initial batch, in epochs.
    """

    scale: float
    gain: float
    epochs: float
    warmup_epochs: float = 0.0


def adascale(inputs: LearningRateInputs) -> float:
    """Return the gain (Johnson et al., ICML'20, algorithm 1)."""
    return inputs.gain


def square_root(inputs: LearningRateInputs) -> float:
    """Return sqrt(scale), the rule for Adam (Krizhevsky 2014; Malladi et al. 2022).

    The rule of Malladi et al. also makes 1 - beta `scale` times larger and epsilon sqrt(scale)
    times smaller. Here only the learning rate follows, so Adam's averages span more examples at
    larger batches.
    """
    return math.sqrt(inputs.scale)


def linear(inputs: LearningRateInputs) -> float:
    """Return scale (Goyal et al. 2017)."""
    return inputs.scale


def legw(inputs: LearningRateInputs) -> float:
    """Return sqrt(scale), warmed up over `scale` times the epochs (You et al., SC'19)."""
    warmup_epochs = inputs.warmup_epochs * inputs.scale
    warm_up_fraction = 1.0 if warmup_epochs <= 0 else min(1.0, inputs.epochs / warmup_epochs)
    return math.sqrt(inputs.scale) * warm_up_fraction


def unchanged(inputs: LearningRateInputs) -> float:
    """Return 1: the script's learning rate holds at any batch size."""
    return 1.0


LearningRateRule = Callable[[LearningRateInputs], float]

NO_RULE = "none"
RULES: dict[str, LearningRateRule] = {
    "adascale": adascale,
    "sqrt": square_root,
    "linear": linear,
    "legw": legw,
    NO_RULE: unchanged,
}

_RULES_WITH_DECAY: frozenset[LearningRateRule] = frozenset({square_root, legw})
_ALWAYS_DECOUPLED = (torch.optim.Adafactor, torch.optim.Muon)


def rule_named(name: str) -> LearningRateRule:
    """Return the rule of that name.

    Raises:
        ValueError: there is none; the message lists the names.
    """
    try:
        return RULES[name]
    except KeyError:
        raise ValueError(f"lr_rule={name!r}: choose one of {', '.join(RULES)}") from None


def default_rule(optimizer: torch.optim.Optimizer) -> str | None:
    """Return the name of the rule for `optimizer`'s family; None if no rule is known.

    A rule of one family can make another one diverge or slow down. An optimizer that is neither
    SGD nor of Adam's family therefore keeps the script's learning rate.
    """
    if is_adam(optimizer):
        return "sqrt"
    return "adascale" if isinstance(optimizer, torch.optim.SGD) else None


@contextmanager
def scaled_groups(
    optimizer: torch.optim.Optimizer, rule: LearningRateRule, inputs: LearningRateInputs
) -> Iterator[None]:
    """Scale each group's learning rate and decoupled decay by `rule` within the context.

    Both have the script's values again afterwards.
    """
    factor = rule(inputs)
    script_values = [(group["lr"], group.get("weight_decay")) for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        if rule in _RULES_WITH_DECAY and _is_decoupled(optimizer, group):
            group["weight_decay"] = _scaled_decay(group, factor, inputs.scale)
        group["lr"] = group["lr"] * factor
    try:
        yield
    finally:
        for group, (learning_rate, decay) in zip(
            optimizer.param_groups, script_values, strict=True
        ):
            group["lr"] = learning_rate
            if decay is not None:
                group["weight_decay"] = decay


def _is_decoupled(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> bool:
    is_always_decoupled = isinstance(optimizer, _ALWAYS_DECOUPLED)
    return bool(group.get("weight_decay")) and (
        is_always_decoupled or group.get("decoupled_weight_decay", False)
    )


def _scaled_decay(group: dict[str, Any], factor: float, scale: float) -> float:
    """Return the decay that shrinks weights in one step as in `scale` steps of the initial batch.

    The result is close to sqrt(scale) times the script's decay, and exact also for a large decay.
    """
    decay, learning_rate = float(group["weight_decay"]), float(group["lr"])
    shrinkage = learning_rate * factor / math.sqrt(scale) * decay
    if not 0 < shrinkage < 1:
        return decay * math.sqrt(scale)
    return -math.expm1(scale * math.log1p(-shrinkage)) / (learning_rate * factor)
