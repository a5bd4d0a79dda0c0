"""What an optimizer divides gradients by: the noise scale is measured in its terms.

Adam moves by the gradient over the root of its mean square, so what counts for its convergence is
the noise of that quotient (Pollux section 3.1). Parameters that have hardly ever had a gradient,
such as the embeddings of rare tokens, have a mean square near 0: the first gradient over its root
would drown all others, though Adam itself takes that gradient into the mean square before it
divides. The root is therefore bounded below by a share of its tensor's. Adamax moves by the
gradient over its largest of late, which is taken in place of the root.

What an optimizer does not move does not count at all, nor do Adam's first steps with a parameter,
when its averages mean nothing yet: raw gradients are of another unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Preconditioner = Callable[[Tensor], Tensor | None]

LEFT_OUT = torch.tensor(math.inf)
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


def preconditioner_of(optimizer: torch.optim.Optimizer) -> Preconditioner:
    """Maps a parameter to what its gradient is divided by: None where that is 1, `LEFT_OUT` where
    its gradient does not count."""
    groups = {
        id(parameter): group for group in optimizer.param_groups for parameter in group["params"]
    }
    preconditions = is_adam(optimizer)

    def scale(parameter: Tensor) -> Tensor | None:
        if id(parameter) not in groups:
            return LEFT_OUT
        if not preconditions:
            return None
        state = optimizer.state.get(parameter)
        if not state or float(state["step"]) < WARM_UP_STEPS:
            return LEFT_OUT
        return _usual_size(state, groups[id(parameter)])

    return scale


def _usual_size(state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    """What the optimizer divides each element of a gradient by, or a little more."""
    if "exp_inf" in state:
        size: Tensor = state["exp_inf"]
    else:
        correction = 1 - float(group["betas"][1]) ** float(state["step"])
        size = (state["exp_avg_sq"] / correction).sqrt()
    least = _LEAST_SHARE * size.square().mean().sqrt()
    return torch.maximum(size, least) + float(group["eps"])
