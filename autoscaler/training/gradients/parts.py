"""Parts of sharded tensors that one rank holds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement


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


def layout_of(tensor: Tensor) -> dict[str, Any] | None:
    """Return the layout of a sharded tensor in plain values; None for others."""
    if not isinstance(tensor, DTensor):
        return None
    return {
        "dimension": _dimension_of(tensor.placements[-1]),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
    }


def with_layout(local: Tensor, layout: dict[str, Any], mesh: DeviceMesh) -> DTensor:
    """Return a tensor on `mesh` with a result of `layout_of`, of which `local` is a part.

    A mesh of copies x shards holds the same part in each copy.
    """
    placements: list[Placement] = [Replicate()] * mesh.ndim
    if layout["dimension"] is not None:
        placements[-1] = Shard(layout["dimension"])
    return DTensor.from_local(
        local,
        mesh,
        placements,
        run_check=False,
        shape=torch.Size(layout["shape"]),
        stride=tuple(layout["stride"]),
    )


def _dimension_of(placement: Placement) -> int | None:
    """Return the dimension that a placement shards; None for a copy."""
    if isinstance(placement, Partial):
        raise TypeError("a state holds a partial sum: an optimizer must keep whole values")
    return placement.dim if isinstance(placement, Shard) else None
