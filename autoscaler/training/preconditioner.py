"""What an optimizer divides gradients by: the noise scale is measured in its terms.

Adam moves by the gradient over the root of its mean square, so what counts for its convergence is
the noise of that quotient (Pollux section 3.1). Parameters that have hardly ever had a gradient,
such as the embeddings of rare tokens, have a mean square near 0: the first gradient over its root
would drown all others, though Adam itself takes that gradient into the mean square before it
divides. The root is therefore bounded below by a share of its tensor's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Preconditioner = Callable[[Tensor], Tensor | None]

_WARM_UP_STEPS = 5
_LEAST_SHARE = 0.1


def is_adam(optimizer: torch.optim.Optimizer) -> bool:
    """The optimizer keeps Adam's mean squares."""
    return isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW | torch.optim.NAdam)


def preconditioner_of(optimizer: torch.optim.Optimizer) -> Preconditioner:
    """Maps a parameter to what its gradient is divided by; None where that is 1."""
    if not is_adam(optimizer):
        return lambda parameter: None
    constants = {
        id(parameter): (float(group["betas"][1]), float(group["eps"]))
        for group in optimizer.param_groups
        for parameter in group["params"]
    }

    def scale(parameter: Tensor) -> Tensor | None:
        state = optimizer.state.get(parameter)
        if not state or float(state["step"]) < _WARM_UP_STEPS:
            return None
        beta, epsilon = constants[id(parameter)]
        correction = 1 - beta ** float(state["step"])
        mean_square: Tensor = state["exp_avg_sq"] / correction
        least = _LEAST_SHARE * mean_square.mean().sqrt()
        return torch.maximum(mean_square.sqrt(), least) + epsilon

    return scale
