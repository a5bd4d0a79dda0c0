"""State received from another rank: its description, and the memory that receives it."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import (
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_map,
    tree_unflatten,
)

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Description:
    """Tree of plain values with tensors that have a shape and a type, but no memory.

    `on_host`: for each tensor, whether it is in CPU memory at the sender.
    """

    tree: Any
    on_host: list[bool]

    def to_bytes(self) -> bytes:
        """Serialise the description."""
        buffer = io.BytesIO()
        torch.save({"tree": self.tree, "on_host": self.on_host}, buffer)
        return buffer.getvalue()


def describe(tree: Any) -> Description:
    """Return the description of a tree."""
    on_host = [tensor.device.type == "cpu" for tensor in tensors_of(tree)]
    return Description(tree_map(_as_meta, tree), on_host)


def description_from(content: bytes) -> Description:
    """Deserialise a description. Only tensors and plain containers are loaded.

    Raises:
        RuntimeError, pickle.UnpicklingError: the bytes are no description.
    """
    return Description(**torch.load(io.BytesIO(content), weights_only=True))


def tensors_of(tree: Any) -> list[Tensor]:
    """Return the tensors of a tree, in tree order."""
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


class StateBuffer:
    """Memory for a described state, on `device` or the CPU as at its sender.

    `tensors` are the tensors to fill, in the order of the description. In place, they are the
    tensors of `own` with the same name, type and shape, so that no further memory is needed.
    Otherwise all of them are new CPU tensors, and `own` stays unchanged until `complete`.
    """

    def __init__(
        self, own: Any, description: Description, device: torch.device, in_place: bool
    ) -> None:
        named, self._structure = tree_flatten_with_path(description.tree)
        on_host = iter(description.on_host)
        own_leaves = {keystr(path): leaf for path, leaf in tree_flatten_with_path(own)[0]}
        self._leaves: list[Any] = []
        self._own_tensors: list[Tensor | None] = []
        self._devices: list[torch.device] = []
        self.tensors: list[Tensor] = []
        for path, leaf in named:
            if not isinstance(leaf, Tensor):
                self._leaves.append(leaf)
                continue
            final_device = _CPU if next(on_host) else device
            present = own_leaves.get(keystr(path))
            matching = present if _is_alike(present, leaf) else None
            if in_place and matching is not None and _can_be_filled(matching, final_device):
                target = matching
            else:
                memory_device = final_device if in_place else _CPU
                target = torch.empty(leaf.shape, dtype=leaf.dtype, device=memory_device)
            self._leaves.append(target)
            self._own_tensors.append(matching)
            self._devices.append(final_device)
            self.tensors.append(target)

    def complete(self) -> Any:
        """Return the tree once all tensors are filled, in the tensors of `own` where they fit."""
        received = iter(zip(self.tensors, self._own_tensors, self._devices, strict=True))
        leaves = [
            _in_own_memory(*next(received)) if isinstance(leaf, Tensor) else leaf
            for leaf in self._leaves
        ]
        return tree_unflatten(leaves, self._structure)


def _as_meta(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return torch.empty(leaf.shape, dtype=leaf.dtype, device="meta")


def _is_alike(present: Any, described: Tensor) -> bool:
    return (
        isinstance(present, Tensor)
        and present.shape == described.shape
        and present.dtype == described.dtype
    )


def _can_be_filled(tensor: Tensor, device: torch.device) -> bool:
    """Return whether bytes can be received into a tensor: on `device`, in C order."""
    return tensor.is_contiguous() and tensor.device.type == device.type


def _in_own_memory(received: Tensor, current: Tensor | None, device: torch.device) -> Tensor:
    """Return the received values: in `current` if there is one, else on `device`."""
    if current is None:
        return received.to(device)
    if current is not received:
        current.detach().copy_(received)
    return current
