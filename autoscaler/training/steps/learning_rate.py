"""How the learning rate follows the batch size.

Each rule answers: by what factor is the user's own learning rate, set for the initial batch,
multiplied at a batch that is `scale` times larger? The schedule over time stays the user's.

Decoupled weight decay, as of AdamW, shrinks weights by learning rate x decay in each step. A rule
that multiplies the learning rate by sqrt(scale) leaves too little of it for each example: steps
are `scale` times fewer. There the decay grows, too, so that as many examples shrink a weight as
much at any batch (Malladi et al. 2022, the scaling rule of AdamW: decay x sqrt(scale)).
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
    """What a rule may know.

    `scale` is batch / initial batch; `gain` is AdaScale's r_t in [1, scale]; `epochs` the
    useful passes through the data so far; `warmup_epochs` LEGW's warm-up at the initial batch.
    """

    scale: float
    gain: float
    epochs: float
    warmup_epochs: float = 0.0


def adascale(inputs: LearningRateInputs) -> float:
    """The gain itself (Johnson et al., ICML'20, algorithm 1)."""
    return inputs.gain


def square_root(inputs: LearningRateInputs) -> float:
    """sqrt(scale), the rule for Adam (Krizhevsky 2014; Malladi et al. 2022).

    The latter's also makes 1 - beta `scale` times larger and epsilon sqrt(scale) times smaller;
    here only the learning rate follows, so Adam's averages span more examples at larger batches.
    """
    return math.sqrt(inputs.scale)


def linear(inputs: LearningRateInputs) -> float:
    """Scale (Goyal et al. 2017)."""
    return inputs.scale


def legw(inputs: LearningRateInputs) -> float:
    """sqrt(scale), warmed up over `scale` times the epochs (You et al., SC'19)."""
    warmup_epochs = inputs.warmup_epochs * inputs.scale
    reached = 1.0 if warmup_epochs <= 0 else min(1.0, inputs.epochs / warmup_epochs)
    return math.sqrt(inputs.scale) * reached


def unchanged(inputs: LearningRateInputs) -> float:
    """The user's own, whatever the batch."""
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

_DECAY_BY_EXAMPLE: frozenset[LearningRateRule] = frozenset({square_root, legw})
_ALWAYS_DECOUPLED = (torch.optim.Adafactor, torch.optim.Muon)


def rule_named(name: str) -> LearningRateRule:
    """The rule of that name.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    try:
        return RULES[name]
    except KeyError:
        raise ValueError(f"lr_rule={name!r}: choose one of {', '.join(RULES)}") from None


def default_rule(optimizer: torch.optim.Optimizer) -> str | None:
    """Return the name of the rule for `optimizer`'s family, or None where none is known.

    A rule that holds for one family makes another diverge or crawl. So an optimizer that is
    neither SGD nor of Adam's family gets none: its learning rate stays the script's.
    """
    if is_adam(optimizer):
        return "sqrt"
    return "adascale" if isinstance(optimizer, torch.optim.SGD) else None


@contextmanager
def scaled_groups(
    optimizer: torch.optim.Optimizer, rule: LearningRateRule, inputs: LearningRateInputs
) -> Iterator[None]:
    """Scale each parameter group's learning rate and decoupled decay for one step, as `rule` says.

    Both are the script's own again afterwards.
    """
    factor = rule(inputs)
    owned = [(group["lr"], group.get("weight_decay")) for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        if rule in _DECAY_BY_EXAMPLE and _is_decoupled(optimizer, group):
            group["weight_decay"] = _decay_of_step(group, factor, inputs.scale)
        group["lr"] = group["lr"] * factor
    try:
        yield
    finally:
        for group, (learning_rate, decay) in zip(optimizer.param_groups, owned, strict=True):
            group["lr"] = learning_rate
            if decay is not None:
                group["weight_decay"] = decay


def _is_decoupled(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> bool:
    always = isinstance(optimizer, _ALWAYS_DECOUPLED)
    return bool(group.get("weight_decay")) and (
        always or group.get("decoupled_weight_decay", False)
    )


def _decay_of_step(group: dict[str, Any], factor: float, scale: float) -> float:
    """Return the decay at which one step shrinks weights as `scale` steps of the initial batch do.

    It is close to sqrt(scale) times the script's own decay, and exact where that is large.
    """
    decay, learning_rate = float(group["weight_decay"]), float(group["lr"])
    shrinks = learning_rate * factor / math.sqrt(scale) * decay
    if not 0 < shrinks < 1:
        return decay * math.sqrt(scale)
    return -math.expm1(scale * math.log1p(-shrinks)) / (learning_rate * factor)
