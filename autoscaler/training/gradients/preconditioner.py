"""What optimizers divide gradients by: the noise scale is measured in their terms.

Adam moves by the gradient over the root of its mean square, so what counts for its convergence is
the noise of that quotient (Pollux section 3.1). Parameters that have hardly ever had a gradient,
such as the embeddings of rare tokens, have a mean square near 0: the first gradient over its root
would drown all others, though Adam itself takes that gradient into the mean square before it
divides. The root is therefore bounded below by a share of its tensor's. Adamax moves by the
gradient over its largest of late, which is taken in place of the root.

What an optimizer does not move does not count at all, nor do Adam's first steps with a parameter,
when its averages mean nothing yet: raw gradients are of another unit. All is computed on the
parameters' device, and nothing of it is read by the host.

Where one of several optimizers is of Adam's family, gradients count by how far their own optimizer
moves parameters for them: factors are multiplied by the learning rate that the script began with,
in shares of the largest. Muon moves a matrix by as much whatever the size of its gradient, so that
the gradient counts in shares of its usual size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

WARM_UP_STEPS = 5

_LEAST_SHARE = 0.1
_FAMILY = (
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adamax,
)


def is_adam(optimizer: torch.optim.Optimizer) -> bool:
    """The optimizer moves by gradients over their usual size, element by element."""
    return isinstance(optimizer, _FAMILY)


def has_adam(optimizers: Iterable[torch.optim.Optimizer]) -> bool:
    """Return whether one of the optimizers is of Adam's family."""
    return any(is_adam(optimizer) for optimizer in optimizers)


class Preconditioner:
    """The factors by which optimizers multiply gradients before they move by them.

    They are all 1 unless one of the optimizers `is_adaptive`.
    """

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.is_adaptive = has_adam(optimizers)
        self._movers = {
            id(parameter): (optimizer, number)
            for optimizer in optimizers
            for number, group in enumerate(optimizer.param_groups)
            for parameter in group["params"]
        }
        self._rate_shares = _rate_shares(optimizers) if len(optimizers) > 1 else {}

    def counts(self, parameter: Tensor) -> bool:
        """Return whether an optimizer moves the parameter."""
        return id(parameter) in self._movers

    def factors(self, parameter: Tensor) -> Tensor:
        """Return a factor for each element of the parameter; 0 where its gradient does not count.

        One of the optimizers is adaptive.
        """
        if not self.counts(parameter):
            return torch.zeros_like(parameter, requires_grad=False)
        optimizer, number = self._movers[id(parameter)]
        # A state that is loaded, as by a joiner, is another dict than the one before it.
        state, group = optimizer.state.get(parameter), optimizer.param_groups[number]
        factors = _factors(optimizer, group, state or {}, parameter)
        return factors * self._rate_shares.get((id(optimizer), number), 1.0)


def _rate_shares(optimizers: Iterable[torch.optim.Optimizer]) -> dict[tuple[int, int], float]:
    """Return each group's share in the largest learning rate that the script began with."""
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
        return _factors_of_matrix(state.get("momentum_buffer"), like)
    if not is_adam(optimizer):
        return torch.ones_like(like, requires_grad=False)
    if not state:
        return torch.zeros_like(like, requires_grad=False)
    factors = _usual_size(state, group).reciprocal()
    has_averages = torch.as_tensor(state["step"]) >= WARM_UP_STEPS
    # An element that has never had a gradient has no size: its factor is infinite.
    return torch.nan_to_num(factors * has_averages, nan=0.0, posinf=0.0)


def _factors_of_matrix(usual: Tensor | None, like: Tensor) -> Tensor:
    """Return one factor for all of a matrix: a gradient of its usual norm becomes a rotation's."""
    if usual is None:
        return torch.zeros_like(like, requires_grad=False)
    factor = min(like.shape) ** 0.5 / torch.linalg.vector_norm(usual)
    return torch.nan_to_num(factor, nan=0.0, posinf=0.0).expand_as(like)


def _usual_size(state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    """Return what each element of a gradient is divided by, or a little more."""
    if "exp_inf" in state:
        size: Tensor = state["exp_inf"]
    else:
        correction = 1 - float(group["betas"][1]) ** torch.as_tensor(state["step"])
        size = (state.get("max_exp_avg_sq", state["exp_avg_sq"]) / correction).sqrt()
    least = _LEAST_SHARE * size.square().mean().sqrt()
    return torch.maximum(size, least) + float(group["eps"])
