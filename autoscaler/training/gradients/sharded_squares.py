"""Squared norms of gradients that are sharded over ranks, for the noise scale.

A rank's own gradient exists whole only as the input of a reduce-scatter. Its parts there are in
the order of the ranks, each with the layout of that rank's output. The factors of an adaptive
optimizer lie on the ranks as its state does. They are laid out as the output, and gathered for the
input in sampled steps only. As in `squares`, they have 16 bits and are reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from autoscaler.training.gradients.parts import local_part
from autoscaler.training.gradients.preconditioner import Preconditioner
from autoscaler.training.gradients.squares import FACTOR_TYPE, Reuse, square_of

# Gathers the tensors of all ranks that hold one copy of the model, by rank.
Gather = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class PartLayout:
    """Layout of this rank's output of one reduce-scatter: parameters, and elements of each.

    A parameter may have more elements there than this rank's part: the others are padding.
    """

    parameters: Sequence[Tensor]
    padded_sizes: Sequence[int]

    @property
    def length(self) -> int:
        """Elements of the output."""
        return sum(self.padded_sizes)


class ShardedSquares:
    """Squared norms of this rank's own gradients, and of its parts of summed gradients.

    Args:
        preconditioner: factors of gradients.
        layouts: layout of each reduce-scatter.
        sum_over_ranks: sums numbers over the ranks of the replica.
        copies: number of copies of the model on these ranks.
    """

    def __init__(
        self,
        preconditioner: Preconditioner,
        layouts: Sequence[PartLayout],
        sum_over_ranks: Callable[[list[float]], list[float]],
        copies: int,
    ) -> None:
        self._preconditioner = preconditioner
        self._layouts = layouts
        self._sum_over_ranks = sum_over_ranks
        self._copies = copies
        self._reuse = Reuse()
        self._flat: list[Tensor] = []
        self._factors: dict[int, Tensor] = {}
        all_count = all(
            preconditioner.counts(parameter)
            for layout in layouts
            for parameter in layout.parameters
        )
        self._has_factors = preconditioner.is_adaptive or not all_count

    def forget(self) -> None:
        """Recompute the factors at the next sampled step, as all replicas do at a join."""
        self._reuse.forget()

    def prepare(self, step: int) -> None:
        """Recompute the factors if they are too old for a sample of step `step`.

        All ranks must call this.
        """
        if self._has_factors and not self._reuse.holds_at(step):
            if not self._flat:
                self._allocate()
            usual_squares = self._usual_squares()
            for layout in self._layouts:
                for parameter in layout.parameters:
                    view = self._factors[id(parameter)]
                    view.copy_(self._factors_of(parameter, usual_squares.get(id(parameter))))

    def of_input(self, number: int, values: Tensor, gather: Gather) -> Tensor | None:
        """Return the squared norm of this rank's gradient in the input of a reduce-scatter.

        Args:
            number: index of its layout.
            values: the input.
            gather: gathers the factors, in the order of the input.

        Returns:
            The square; None if some parameters have no part in the input, whose layout is then
            unknown.
        """
        if not self._has_factors:
            return square_of(values)
        factors = gather(self._flat[number])
        return square_of(values * factors) if factors.numel() == values.numel() else None

    def of(self, gradients: Iterable[tuple[Tensor, Tensor]], device: torch.device) -> Tensor:
        """Return this rank's share of the squared norm of (parameter, gradient) pairs.

        The shares of all ranks of the replica add up to the squared norm.
        """
        squares = []
        for parameter, gradient in gradients:
            part = local_part(gradient)
            factors = self._factors.get(id(parameter))
            squares.append(square_of(part if factors is None else part * factors).to(device))
        if not squares:
            return torch.zeros((), device=device)
        return torch.stack(squares).sum() / self._copies

    def _allocate(self) -> None:
        for layout in self._layouts:
            device = local_part(layout.parameters[0]).device if layout.parameters else None
            flat = torch.zeros(layout.length, dtype=FACTOR_TYPE, device=device)
            self._flat.append(flat)
            parts = torch.split(flat, list(layout.padded_sizes))
            for parameter, part in zip(layout.parameters, parts, strict=True):
                shape = local_part(parameter).shape
                self._factors[id(parameter)] = part[: shape.numel()].view(shape)

    def _usual_squares(self) -> dict[int, Tensor]:
        """Return the sum of squares of each parameter's usual gradient, over all its parts."""
        if not self._preconditioner.is_adaptive:
            return {}
        parameters = [parameter for layout in self._layouts for parameter in layout.parameters]
        device = self._flat[0].device
        squares = [
            self._preconditioner.usual_square(parameter).to(device) for parameter in parameters
        ]
        sums = self._sum_over_ranks(torch.stack(squares).double().tolist())
        return {
            id(parameter): torch.tensor(total / self._copies)
            for parameter, total in zip(parameters, sums, strict=True)
        }

    def _factors_of(self, parameter: Tensor, usual_square: Tensor | None) -> Tensor:
        if self._preconditioner.is_adaptive:
            return self._preconditioner.factors(parameter, usual_square)
        return torch.full_like(
            local_part(parameter), float(self._preconditioner.counts(parameter))
        )
