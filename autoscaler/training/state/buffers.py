"""Model buffers that the forward pass writes, such as BatchNorm's running statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn


def written_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and tensor of each saved buffer that a forward pass may write.

    BatchNorm writes its running statistics and counts its batches. Boolean masks and complex
    tables are left out: they are large and constant.
    """
    saved_names = model.state_dict(keep_vars=True).keys()
    for name, buffer in model.named_buffers():
        is_number = buffer.dtype is not torch.bool and not buffer.is_complex()
        if name in saved_names and is_number:
            yield name, buffer


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
