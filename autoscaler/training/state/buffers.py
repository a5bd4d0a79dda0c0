"""Copies of the buffers that the forward pass writes: for a step, and for other instances."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from autoscaler.training.collectives.buffers import written_buffers


class BufferGuard:
    """Copy of the model's buffers before the present step, to undo what the step writes."""

    def __init__(self, model: nn.Module) -> None:
        self._buffers = [buffer for _, buffer in written_buffers(model)]
        self._copies = [buffer.detach().clone() for buffer in self._buffers]

    def keep(self) -> None:
        """Copy the buffers' present values."""
        if self._buffers:
            torch._foreach_copy_(self._copies, self._buffers)

    def restore(self) -> None:
        """Set the buffers back to the values that `keep` copied."""
        if self._buffers:
            torch._foreach_copy_(self._buffers, self._copies)


class SharedBuffers:
    """Buffers of the model, which each replica writes from its own examples."""

    def __init__(self, model: nn.Module) -> None:
        self._buffers = [buffer for _, buffer in written_buffers(model)]

    def share(self, is_source: bool, sum_over_replicas: Callable[[Tensor], bool]) -> None:
        """Set the buffers of every replica to those of the source replica.

        Args:
            is_source: whether this replica is the source; exactly one replica is.
            sum_over_replicas: sums a tensor over replicas in place and returns whether that
                succeeded. If the sum fails, the buffers stay unchanged.
        """
        if not self._buffers:
            return
        flat = torch.cat([buffer.detach().reshape(-1).double() for buffer in self._buffers])
        summed = flat if is_source else torch.zeros_like(flat)
        if not sum_over_replicas(summed) or is_source:
            return
        sizes = [buffer.numel() for buffer in self._buffers]
        for buffer, values in zip(self._buffers, torch.split(summed, sizes), strict=True):
            buffer.copy_(values.view_as(buffer))
