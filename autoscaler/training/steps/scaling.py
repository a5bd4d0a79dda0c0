"""Scaled losses, for half-precision gradients that would otherwise vanish.

The session scales each micro-step's loss and unscales the summed gradient. Clipping, learning-rate
rules and the noise scale then use the true gradient. A loss that the script has scaled itself is
refused, as its gradient would never be unscaled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.autograd.graph import Node

_MARK = "castor: scaled by a GradScaler"
_MAX_NODES = 64


class LossScaling:
    """Loss scaling by the script's GradScaler, or none."""

    def __init__(self, scaler: GradScaler | None) -> None:
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._unscaled: list[torch.optim.Optimizer] = []

    def scale(self, loss: Tensor) -> Tensor:
        """Return the scaled loss, from which the backward pass starts."""
        return loss if self._scaler is None else self._scaler.scale(loss)

    def factor(self, device: torch.device) -> Tensor:
        """Return the present scale of gradients as a scalar on `device`, without reading it."""
        unit = torch.ones((), device=device)
        return unit if self._scaler is None else self._scaler.scale(unit)

    def unscale(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Divide the optimizers' gradients by the factor."""
        if self._scaler is None:
            return
        self._unscaled = [optimizer for optimizer in optimizers if _has_gradients(optimizer)]
        for optimizer in self._unscaled:
            self._scaler.unscale_(optimizer)

    def update(self) -> None:
        """Adapt the factor: it is lowered after gradients that were not finite."""
        if self._scaler is not None and self._unscaled:
            self._scaler.update()
        self._unscaled = []

    def forget(self) -> None:
        """Keep the factor, ignoring the gradients of this step."""
        if self._scaler is not None:
            for optimizer in self._unscaled:
                self._scaler._per_optimizer_states.pop(id(optimizer), None)
        self._unscaled = []


class ScaledLosses:
    """Losses that the script itself has scaled since the session was opened."""

    def __init__(self) -> None:
        self._has_any = False

    def mark(self, tensor: Tensor) -> None:
        """Mark `tensor` as scaled, and thereby all tensors computed from it."""
        if tensor.grad_fn is not None:
            self._has_any = True
            _metadata(tensor.grad_fn)[_MARK] = True

    def require_unscaled(self, loss: Tensor) -> None:
        """Check that `loss` was not scaled.

        Raises:
            ValueError: it was scaled.
        """
        if self._has_any and _is_marked(loss):
            raise ValueError(
                "job.step(loss): the loss is scaled by a GradScaler, and nothing would unscale "
                "its gradient: give the scaler to session(..., scaler=scaler), and job.step the "
                "loss as it is"
            )


@contextmanager
def scaled_losses() -> Iterator[ScaledLosses]:
    """Mark all losses that a GradScaler scales within the context."""
    losses, scale = ScaledLosses(), GradScaler.scale

    def marking_scale(scaler: GradScaler, outputs: Any) -> Any:
        scaled = scale(scaler, outputs)
        if scaler.is_enabled():
            for tensor in [scaled] if isinstance(scaled, Tensor) else scaled:
                losses.mark(tensor)
        return scaled

    GradScaler.scale = marking_scale  # type: ignore[method-assign, assignment]
    try:
        yield losses
    finally:
        GradScaler.scale = scale  # type: ignore[method-assign]


def _has_gradients(optimizer: torch.optim.Optimizer) -> bool:
    groups = optimizer.param_groups
    return any(parameter.grad is not None for group in groups for parameter in group["params"])


def _is_marked(loss: Tensor) -> bool:
    """Return whether one of the last operations behind `loss` was a scaling."""
    nodes = [loss.grad_fn]
    for index in range(_MAX_NODES):
        if index >= len(nodes):
            return False
        node = nodes[index]
        if node is None:
            continue
        if _MARK in _metadata(node):
            return True
        nodes += [source for source, _ in node.next_functions]
    return False


def _metadata(node: Node) -> dict[str, Any]:
    # torch declares the attribute as a method, which it is not.
    return cast(dict[str, Any], node.metadata)
