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

from autoscaler.training.gradients.parts import local_part

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

    def factors(self, parameter: Tensor, usual_square: Tensor | None = None) -> Tensor:
        """Return a factor for each element of the parameter; 0 if its gradient does not count.

        Of a sharded parameter they are the factors of this rank's part. Requires that one of the
        optimizers is adaptive.

        Args:
            parameter: a parameter of the model.
            usual_square: sum over the parts of a sharded parameter of their `usual_square`.
        """
        like = local_part(parameter)
        if not self.counts(parameter):
            return torch.zeros_like(like)
        optimizer, number = self._groups_by_parameter[id(parameter)]
        usual = self._usual_size(parameter)
        if usual is None:
            is_plain = not is_adam(optimizer) and not isinstance(optimizer, torch.optim.Muon)
            factors = torch.ones_like(like) if is_plain else torch.zeros_like(like)
        else:
            square = usual.square().sum() if usual_square is None else usual_square
            factors = self._factors_of(parameter, usual, square.to(usual.device))
        return factors * self._rate_shares.get((id(optimizer), number), 1.0)

    def usual_square(self, parameter: Tensor) -> Tensor:
        """Return the sum of squares of the parameter's usual gradient, of this rank's part.

        It is 0 before the first step, and for optimizers that know no usual gradient.
        """
        usual = self._usual_size(parameter) if self.counts(parameter) else None
        return usual.square().sum().float() if usual is not None else torch.zeros(())

    def _usual_size(self, parameter: Tensor) -> Tensor | None:
        """Return the usual size of each element of the gradient, of this rank's part."""
        optimizer, number = self._groups_by_parameter[id(parameter)]
        # Loading a state, as a joiner does, replaces the optimizer's dict.
        state: dict[str, Any] = optimizer.state.get(parameter) or {}
        if isinstance(optimizer, torch.optim.Muon):
            usual = state.get("momentum_buffer")
            return None if usual is None else local_part(usual)
        if not is_adam(optimizer) or not state:
            return None
        if "exp_inf" in state:
            return local_part(state["exp_inf"])
        beta = float(optimizer.param_groups[number]["betas"][1])
        correction = 1 - beta ** torch.as_tensor(state["step"])
        mean_square = local_part(state.get("max_exp_avg_sq", state["exp_avg_sq"]))
        return (mean_square / correction).sqrt()

    def _factors_of(self, parameter: Tensor, usual: Tensor, usual_square: Tensor) -> Tensor:
        optimizer, number = self._groups_by_parameter[id(parameter)]
        if isinstance(optimizer, torch.optim.Muon):
            # One factor for a matrix, which scales its usual gradient to a rotation's norm.
            factor = min(parameter.shape) ** 0.5 / usual_square.sqrt()
            return torch.nan_to_num(factor, nan=0.0, posinf=0.0).expand_as(usual)
        least_size = _LEAST_RELATIVE_SIZE * (usual_square / parameter.numel()).sqrt()
        epsilon = float(optimizer.param_groups[number]["eps"])
        factors = (torch.maximum(usual, least_size.to(usual.dtype)) + epsilon).reciprocal()
        has_averages = torch.as_tensor(optimizer.state[parameter]["step"]) >= WARM_UP_STEPS
        # An element without any gradient so far has size 0: its infinite factor becomes 0.
        return torch.nan_to_num(factors * has_averages, nan=0.0, posinf=0.0)


def _rate_shares(optimizers: Iterable[torch.optim.Optimizer]) -> dict[tuple[int, int], float]:
    """Return each group's initial learning rate, relative to the largest."""
    rates = {
        (id(optimizer), number): float(group.get("initial_lr", group["lr"]))
        for optimizer in optimizers
        for number, group in enumerate(optimizer.param_groups)
    }
    largest = max(rates.values())
    return {key: rate / largest for key, rate in rates.items()} if largest > 0 else {}
