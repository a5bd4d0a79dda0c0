"""Weights by which the mean losses of micro-steps go into the gradient of a step.

By default a micro-step counts by its examples, and the shares of all ranks add up to 1. A script
may give weights instead, such as numbers of tokens. Their sum over the ranks is known only at the
end of the step: the losses are multiplied by the weights, and the summed gradient is divided by
their sum. Until then weights are counted in a unit that is close to that sum, a power of 2, so
that gradients have their usual size, and half precision does not overflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import SupportsFloat

import torch
from torch import Tensor, nn


class StepWeights:
    """The weights of one step's micro-steps on this rank, in units of `unit`.

    Args:
        step_examples: of all ranks.
        weight_per_example: what it was in an earlier step.
    """

    def __init__(self, step_examples: int, weight_per_example: float) -> None:
        self._unit = 2.0 ** round(math.log2(step_examples * weight_per_example))
        self._are_given: bool | None = None
        self.own = 0.0

    @property
    def unit(self) -> float | None:
        """The weight that counts as 1; None where micro-steps count by their examples."""
        return self._unit if self._are_given else None

    def add(self, share: float, weight: float | Tensor | None) -> float:
        """Count one micro-step; return the factor of its mean loss.

        Args:
            share: the part of its examples in those of the step; 0 if they do not count.
            weight: what the script gives.

        Raises:
            TypeError, ValueError: `weight` can't be used, or is given for a part of the step only.
        """
        are_given = weight is not None
        if self._are_given not in (None, are_given):
            raise ValueError(
                "job.step(loss, weight=...): give a weight for all batches of a step, or for none"
            )
        self._are_given = are_given
        factor = share if weight is None else _usable(weight) / self._unit * (share > 0)
        self.own += factor
        return factor


def _usable(weight: object) -> float:
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
    """Return 1, or NaN where `loss` is not finite, to start its backward pass with.

    The gradient of a loss that is not finite may be finite itself, as that of ``loss + nan`` is.
    Nothing is read from the device.
    """
    return loss.detach() * 0 + 1


@contextmanager
def no_gradient(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Have each backward pass inside add zeros to the gradients of `parameters`.

    A mean over nothing is not a number, and 0 times its gradient is none either. The backward
    pass itself is needed: other ranks wait for its sums.
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
