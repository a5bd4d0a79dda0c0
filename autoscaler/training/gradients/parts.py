"""Parts of sharded tensors that one rank holds."""

from __future__ import annotations

from torch import Tensor
from torch.distributed.tensor import DTensor


def local_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a sharded tensor, which shares its memory; others detached."""
    return tensor._local_tensor.detach() if isinstance(tensor, DTensor) else tensor.detach()


def as_part(local: Tensor, sharded: Tensor) -> Tensor:
    """Return `local` as this rank's part of a tensor with the layout of `sharded`.

    If `sharded` is a plain tensor, `local` itself is returned.
    """
    if not isinstance(sharded, DTensor):
        return local
    return DTensor.from_local(
        local,
        sharded.device_mesh,
        sharded.placements,
        run_check=False,
        shape=sharded.shape,
        stride=sharded.stride(),
    )
