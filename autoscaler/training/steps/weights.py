"""Weights of the mean losses of micro-steps in the gradient of a step.

By default a micro-step counts by its examples, and the shares of all ranks add up to 1. A script
may give weights instead, such as numbers of tokens. Their sum over the ranks is known only at the
end of the step. The losses are therefore multiplied by the weights, and the summed gradient is
divided by their sum. Until then weights have a unit close to that sum, a power of 2. Gradients
then have their usual size, and half precision does not overflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import SupportsFloat

import torch
from torch import Tensor


class StepWeights:
    """Weights of one step's micro-steps on this rank, in units of `unit`.

    `own` is their sum so far.

    Args:
        step_examples: examples of all ranks in the step.
        weight_per_example: mean weight per example in an earlier step.
    """

    def __init__(self, step_examples: int, weight_per_example: float) -> None:
        self._unit = 2.0 ** round(math.log2(step_examples * weight_per_example))
        self._are_given: bool | None = None
        self.own = 0.0

    @property
    def unit(self) -> float | None:
        """Weight that counts as 1; None if micro-steps count by their examples."""
        return self._unit if self._are_given else None

    def add(self, share: float, weight: float | Tensor | None) -> float:
        """Add one micro-step and return the factor of its mean loss.

        Args:
            share: fraction of the step's examples; 0 if the examples do not count.
            weight: weight that the script gives; None for none.

        Raises:
            TypeError, ValueError: `weight` can't be used, or is given for a part of the step only.
        """
        are_given = weight is not None
        if self._are_given not in (None, are_given):
            raise ValueError(
                "job.step(loss, weight=...): give a weight for all batches of a step, or for none"
            )
        self._are_given = are_given
        factor = share if weight is None else _require_number(weight) / self._unit * (share > 0)
        self.own += factor
        return factor


def _require_number(weight: object) -> float:
    if isinstance(weight, Tensor) and weight.numel() != 1:
        shape = "x".join(str(size) for size in weight.shape)
        raise ValueError(
            f"job.step(loss, weight=...): the weight has shape {shape}: give one number, such as "
            "weight.sum()"
        )
    if not isinstance(weight, SupportsFloat):
        raise TypeError(
            f"job.step(loss, weight=...): the weight is of type {type(weight).__name__}: give a "
            "number, such as the number of tokens that the mean is over"
        )
    number = float(weight)
    if not (number >= 0 and math.isfinite(number)):
        raise ValueError(f"job.step(loss, weight={number}): the weight must be 0 or more")
    return number


def unit_gradient(loss: Tensor) -> Tensor:
    """Return the gradient to start the backward pass from: 1, or NaN if `loss` is not finite.

    The gradient of a loss that is not finite may be finite, as that of ``loss + nan`` is. Nothing
    is read from the device.
    """
    return loss.detach() * 0 + 1


@contextmanager
def no_gradient(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Make each backward pass in the context add zeros to the gradients of `parameters`.

    A mean over nothing is NaN, and so is 0 times its gradient. The backward pass itself is needed:
    other ranks wait for its sums.
    """
    hooks = [
        parameter.register_hook(torch.zeros_like)  # type: ignore[no-untyped-call]
        for parameter in parameters
        if parameter.requires_grad
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
