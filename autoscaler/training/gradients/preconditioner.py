"""Preconditioning of gradients by their optimizers, for measuring the noise scale.

Adam moves by the gradient over the root of its mean square, so the noise of that quotient governs
its convergence (Pollux section 3.1). Parameters that have rarely had a gradient, such as the
embeddings of rare tokens, have a mean square near 0. Their first gradient over its root would
dominate all others, though Adam itself adds that gradient to the mean square before it divides.
The root is therefore bounded below by a fraction of its tensor's root mean square. Adamax moves by
the gradient over its recent maximum, which replaces the root.

Parameters that no optimizer moves do not count, nor do Adam's first steps with a parameter, in
which its averages are not meaningful: raw gradients have another unit. All values are computed on
the parameters' device, and the host reads none of them.

If one of several optimizers is of Adam's family, gradients count by how far their own optimizer
moves parameters for them. Factors are multiplied by the script's initial learning rate, relative
to the largest. Muon moves a matrix equally far for any size of its gradient, so that the gradient
counts relative to its usual size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

WARM_UP_STEPS = 5

_LEAST_RELATIVE_SIZE = 0.1
_ADAM_FAMILY = (
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adamax,
)


def is_adam(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the optimizer divides gradients elementwise by their usual size."""
    return isinstance(optimizer, _ADAM_FAMILY)


def has_adam(optimizers: Iterable[torch.optim.Optimizer]) -> bool:
    """Return whether one of the optimizers is of Adam's family."""
    return any(is_adam(optimizer) for optimizer in optimizers)


class Preconditioner:
    """Factors by which optimizers multiply gradients before they move parameters.

    All factors are 1 unless one of the optimizers `is_adaptive`.
    """

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.is_adaptive = has_adam(optimizers)
        self._groups_by_parameter = {
            id(parameter): (optimizer, number)
            for optimizer in optimizers
            for number, group in enumerate(optimizer.param_groups)
            for parameter in group["params"]
        }
        self._rate_shares = _rate_shares(optimizers) if len(optimizers) > 1 else {}

    def counts(self, parameter: Tensor) -> bool:
        """Return whether an optimizer moves the parameter."""
        return id(parameter) in self._groups_by_parameter

    def factors(self, parameter: Tensor) -> Tensor:
        """Return a factor for each element of the parameter; 0 if its gradient does not count.

        Requires that one of the optimizers is adaptive.
        """
        if not self.counts(parameter):
            return torch.zeros_like(parameter, requires_grad=False)
        optimizer, number = self._groups_by_parameter[id(parameter)]
        # Loading a state, as a joiner does, replaces the optimizer's dict.
        state, group = optimizer.state.get(parameter), optimizer.param_groups[number]
        factors = _factors(optimizer, group, state or {}, parameter)
        return factors * self._rate_shares.get((id(optimizer), number), 1.0)


def _rate_shares(optimizers: Iterable[torch.optim.Optimizer]) -> dict[tuple[int, int], float]:
    """Return each group's initial learning rate, relative to the largest."""
    rates = {
        (id(optimizer), number): float(group.get("initial_lr", group["lr"]))
        for optimizer in optimizers
        for number, group in enumerate(optimizer.param_groups)
    }
    largest = max(rates.values())
    return {key: rate / largest for key, rate in rates.items()} if largest > 0 else {}


def _factors(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], state: dict[str, Any], like: Tensor
) -> Tensor:
    if isinstance(optimizer, torch.optim.Muon):
        return _muon_factors(state.get("momentum_buffer"), like)
    if not is_adam(optimizer):
        return torch.ones_like(like, requires_grad=False)
    if not state:
        return torch.zeros_like(like, requires_grad=False)
    factors = _gradient_size(state, group).reciprocal()
    has_averages = torch.as_tensor(state["step"]) >= WARM_UP_STEPS
    # An element without any gradient so far has size 0: its infinite factor becomes 0.
    return torch.nan_to_num(factors * has_averages, nan=0.0, posinf=0.0)


def _muon_factors(usual: Tensor | None, like: Tensor) -> Tensor:
    """Return one factor for a matrix, which scales its usual gradient to a rotation's norm."""
    if usual is None:
        return torch.zeros_like(like, requires_grad=False)
    factor = min(like.shape) ** 0.5 / torch.linalg.vector_norm(usual)
    return torch.nan_to_num(factor, nan=0.0, posinf=0.0).expand_as(like)


def _gradient_size(state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    """Return the size by which each element of a gradient is divided, bounded below."""
    if "exp_inf" in state:
        size: Tensor = state["exp_inf"]
    else:
        correction = 1 - float(group["betas"][1]) ** torch.as_tensor(state["step"])
        size = (state.get("max_exp_avg_sq", state["exp_avg_sq"]) / correction).sqrt()
    least_size = _LEAST_RELATIVE_SIZE * size.square().mean().sqrt()
    return torch.maximum(size, least_size) + float(group["eps"])
