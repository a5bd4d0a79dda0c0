"""What an optimizer divides gradients by: the noise scale is measured in its terms.

Adam moves by the gradient over the root of its mean square, so what counts for its convergence is
the noise of that quotient (Pollux section 3.1). Parameters that have hardly ever had a gradient,
such as the embeddings of rare tokens, have a mean square near 0: the first gradient over its root
would drown all others, though Adam itself takes that gradient into the mean square before it
divides. The root is therefore bounded below by a share of its tensor's. Adamax moves by the
gradient over its largest of late, which is taken in place of the root.

What an optimizer does not move does not count at all, nor do Adam's first steps with a parameter,
when its averages mean nothing yet: raw gradients are of another unit. All is computed on the
parameters' device, and nothing of it is read by the host.
"""

from __future__ import annotations

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


class Preconditioner:
    """The factors by which an optimizer multiplies gradients before it moves by them.

    They are all 1 unless the optimizer `is_adaptive`.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.is_adaptive = is_adam(optimizer)
        self._state = optimizer.state
        self._groups = {
            id(parameter): group
            for group in optimizer.param_groups
            for parameter in group["params"]
        }

    def counts(self, parameter: Tensor) -> bool:
        """Return whether the optimizer moves the parameter."""
        return id(parameter) in self._groups

    def factors(self, parameter: Tensor) -> Tensor:
        """Return a factor for each element of the parameter; 0 where its gradient does not count.

        The optimizer is adaptive.
        """
        state = self._state.get(parameter)
        if not state or not self.counts(parameter):
            return torch.zeros_like(parameter, requires_grad=False)
        factors = _usual_size(state, self._groups[id(parameter)]).reciprocal()
        has_averages = torch.as_tensor(state["step"]) >= WARM_UP_STEPS
        # An element that has never had a gradient has no size: its factor is infinite.
        return torch.nan_to_num(factors * has_averages, nan=0.0, posinf=0.0)


def _usual_size(state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    """Return what each element of a gradient is divided by, or a little more."""
    if "exp_inf" in state:
        size: Tensor = state["exp_inf"]
    else:
        correction = 1 - float(group["betas"][1]) ** torch.as_tensor(state["step"])
        size = (state.get("max_exp_avg_sq", state["exp_avg_sq"]) / correction).sqrt()
    least = _LEAST_SHARE * size.square().mean().sqrt()
    return torch.maximum(size, least) + float(group["eps"])
