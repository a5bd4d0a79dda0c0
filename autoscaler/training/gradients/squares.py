"""Squared norms of gradients for the noise scale, summed on the device without reading them.

Reading a number from a GPU blocks the host until the GPU has computed it. In the backward pass
that would leave the GPU without work, so sums stay on the device until a round ends.

The factors of an adaptive optimizer are reused for many steps, in 16 bits. They change slowly, and
their rounding errors (0.2 % each) cancel out over the elements.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from autoscaler.training.gradients.buckets import layout_of, placed
from autoscaler.training.gradients.preconditioner import Preconditioner

_MAX_REUSED_STEPS = 50
# Adam's averages change by a fraction of the steps so far, so later factors last longer.
_REUSED_FRACTION = 0.125
FACTOR_TYPE = torch.bfloat16


@dataclass(slots=True)
class SampledSquares:
    """Squared gradient norms of one step: `small` of this rank's gradient, `big` of the sum.

    Both are 32-bit scalars on the device; None before the first gradient.
    """

    small: Tensor | None = None
    big: Tensor | None = None

    def add_small(self, square: Tensor) -> None:
        """Add a part of this rank's own gradient."""
        self.small = square if self.small is None else self.small + square

    def add_big(self, square: Tensor) -> None:
        """Add a part of the summed gradient."""
        self.big = square if self.big is None else self.big + square


class Reuse:
    """Steps for which the factors that were computed last are reused."""

    def __init__(self) -> None:
        self._computed_step: int | None = None

    def forget(self) -> None:
        """Reuse the factors for no further step."""
        self._computed_step = None

    def holds_at(self, step: int) -> bool:
        """Return whether the factors are new enough for `step`; if not, they are computed now."""
        computed = self._computed_step
        if computed is not None:
            reused_steps = max(1, min(_MAX_REUSED_STEPS, int(_REUSED_FRACTION * computed)))
            if computed <= step < computed + reused_steps:
                return True
        self._computed_step = step
        return False


class Squares:
    """Squared norms of gradients, preconditioned as by their optimizer."""

    def __init__(self, preconditioner: Preconditioner) -> None:
        self._preconditioner = preconditioner
        self._flat: dict[tuple[int, ...], Tensor] = {}
        self._factors: dict[Tensor, Tensor] = {}
        self._reuse = Reuse()

    def forget(self) -> None:
        """Recompute the factors at the next sampled step.

        All replicas call this at a join, so that the joiner's factors are the same.
        """
        self._reuse.forget()

    def prepare(self, step: int) -> None:
        """Recompute the factors if they are too old for a sample of step `step`."""
        if not self._reuse.holds_at(step):
            for parameter, factors in self._factors.items():
                factors.copy_(self._preconditioner.factors(parameter))

    def of_bucket(self, parameters: list[Tensor], buffer: Tensor) -> Tensor:
        """Return the squared norm of the gradients in a bucket's `buffer`."""
        if self._preconditioner.is_adaptive:
            return square_of(buffer * self._flat_factors(parameters, buffer))
        if all(self._preconditioner.counts(parameter) for parameter in parameters):
            return square_of(buffer)
        views = zip(parameters, placed(buffer, layout_of(parameters)), strict=True)
        return self.of(views, buffer.device)

    def of(self, gradients: Iterable[tuple[Tensor, Tensor]], device: torch.device) -> Tensor:
        """Return the squared norm of (parameter, gradient) pairs, as a scalar on `device`."""
        squares = [
            square_of(self._preconditioned(parameter, gradient.detach())).to(device)
            for parameter, gradient in gradients
            if self._preconditioner.counts(parameter)
        ]
        return torch.stack(squares).sum() if squares else torch.zeros((), device=device)

    def _preconditioned(self, parameter: Tensor, gradient: Tensor) -> Tensor:
        if not self._preconditioner.is_adaptive:
            return gradient
        factors = self._factors.get(parameter)
        return gradient * (self._preconditioner.factors(parameter) if factors is None else factors)

    def _flat_factors(self, parameters: list[Tensor], buffer: Tensor) -> Tensor:
        """Return the factors of a bucket's parameters, in the layout of its buffer."""
        key = tuple(id(parameter) for parameter in parameters)
        flat = self._flat.get(key)
        if flat is None:
            flat = self._flat[key] = torch.zeros_like(buffer, dtype=FACTOR_TYPE)
            for parameter, view in zip(
                parameters, placed(flat, layout_of(parameters)), strict=True
            ):
                view.copy_(self._preconditioner.factors(parameter))
                self._factors[parameter] = view
        return flat


def square_of(values: Tensor) -> Tensor:
    """Return the sum of squares of a tensor as a 32-bit scalar on its device."""
    if values.is_sparse:
        values = values.coalesce().values()
    if values.device.type == "cpu":  # where a dot product is faster than a norm, and more exact
        kind = torch.float64 if values.dtype == torch.float64 else torch.float32
        flat = values.reshape(-1).to(kind)
        return torch.dot(flat, flat).to(torch.float32)
    norm: Tensor = torch.linalg.vector_norm(values, dtype=torch.float32)
    return norm.square()
