"""Model buffers that the forward pass writes, such as BatchNorm's running statistics."""

from __future__ import annotations

from collections.abc import Iterator

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
