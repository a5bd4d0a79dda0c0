"""Batches in pieces: each worker reads some streams of a batch, the training process collates.

If one worker loaded whole batches, every worker would read every stream of its rank.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map


class _Pickler(pickle.Pickler):
    """Pickler of CPU tensors as arrays; torch would pass a file descriptor for each."""

    def reducer_override(self, value: Any) -> Any:
        is_plain = type(value) is Tensor and value.layout is torch.strided and value.is_cpu
        if not is_plain or value.requires_grad or value.dtype not in _NUMPY_DTYPES:
            return NotImplemented
        return torch.from_numpy, (value.numpy(),)


_NUMPY_DTYPES = {
    torch.from_numpy(np.empty(0, dtype)).dtype
    for dtype in ("?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")
}


def packed(examples: Sequence[Any]) -> Tensor:
    """Serialise a worker's piece into one byte tensor, which processes can share."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(list(examples))
    return torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)


def joined(pieces: Sequence[Tensor]) -> list[Any]:
    """Return the examples of all pieces, in order."""
    return [example for piece in pieces for example in pickle.loads(piece.numpy().data)]


def split(indices: Sequence[int], pieces: int) -> list[list[int]]:
    """Split `indices` into `pieces` contiguous lists, one per worker; some may be empty."""
    bounds = [len(indices) * piece // pieces for piece in range(pieces + 1)]
    return [list(indices[low:high]) for low, high in pairwise(bounds)]


def collated(pieces: Sequence[Tensor], collate: Callable[[list[Any]], Any], pins: bool) -> Any:
    """Collate the examples of all pieces; with `pins`, into pinned memory if there is a device."""
    batch = collate(joined(pieces))
    return tree_map(_pinned, batch) if pins and torch.accelerator.is_available() else batch


def _pinned(leaf: Any) -> Any:
    return leaf.pin_memory() if isinstance(leaf, Tensor) else leaf
