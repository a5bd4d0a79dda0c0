"""A state that is received from another rank: its description, and the memory that it comes to."""

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
    """A tree of plain values with tensors that have a shape and a type, but no memory.

    `on_host`: for each of its tensors, whether it lies on the CPU of who has it.
    """

    tree: Any
    on_host: list[bool]

    def to_bytes(self) -> bytes:
        """Return it as bytes."""
        buffer = io.BytesIO()
        torch.save({"tree": self.tree, "on_host": self.on_host}, buffer)
        return buffer.getvalue()


def describe(tree: Any) -> Description:
    """Return the description of a tree."""
    on_host = [tensor.device.type == "cpu" for tensor in tensors_of(tree)]
    return Description(tree_map(_without_memory, tree), on_host)


def description_from(content: bytes) -> Description:
    """Return the description that bytes are. Nothing but tensors and plain containers is loaded.

    Raises:
        RuntimeError, pickle.UnpicklingError: they are none.
    """
    return Description(**torch.load(io.BytesIO(content), weights_only=True))


def tensors_of(tree: Any) -> list[Tensor]:
    """Return the tensors of a tree, in its order."""
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


class Reception:
    """Memory for a state that is described, on `device` or the CPU, as its sender has it.

    `tensors` are to be filled, in the order of the description. In place, they are those tensors
    of `own` that have the same name, type and shape, so that no memory is needed beside them.
    Otherwise all of them are new ones on the CPU, and `own` is as it was until `complete`.
    """

    def __init__(
        self, own: Any, description: Description, device: torch.device, in_place: bool
    ) -> None:
        named, self._structure = tree_flatten_with_path(description.tree)
        on_host = iter(description.on_host)
        known = {keystr(path): leaf for path, leaf in tree_flatten_with_path(own)[0]}
        self._leaves: list[Any] = []
        self._own: list[Tensor | None] = []
        self._places: list[torch.device] = []
        self.tensors: list[Tensor] = []
        for path, leaf in named:
            if not isinstance(leaf, Tensor):
                self._leaves.append(leaf)
                continue
            place = _CPU if next(on_host) else device
            present = known.get(keystr(path))
            usable = present if _is_alike(present, leaf) else None
            if in_place and usable is not None and _can_be_filled(usable, place):
                target = usable
            else:
                where = place if in_place else _CPU
                target = torch.empty(leaf.shape, dtype=leaf.dtype, device=where)
            self._leaves.append(target)
            self._own.append(usable)
            self._places.append(place)
            self.tensors.append(target)

    def complete(self) -> Any:
        """Return the tree, once all tensors are filled; those of `own` where they fit."""
        received = iter(zip(self.tensors, self._own, self._places, strict=True))
        leaves = [
            _kept(*next(received)) if isinstance(leaf, Tensor) else leaf for leaf in self._leaves
        ]
        return tree_unflatten(leaves, self._structure)


def _without_memory(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return torch.empty(leaf.shape, dtype=leaf.dtype, device="meta")


def _is_alike(present: Any, described: Tensor) -> bool:
    return (
        isinstance(present, Tensor)
        and present.shape == described.shape
        and present.dtype == described.dtype
    )


def _can_be_filled(tensor: Tensor, place: torch.device) -> bool:
    """Whether bytes can be received to a tensor as they are sent: at `place`, in C order."""
    return tensor.is_contiguous() and tensor.device.type == place.type


def _kept(received: Tensor, own: Tensor | None, place: torch.device) -> Tensor:
    """Return `own` with what was received, or what was received, at its place."""
    if own is None:
        return received.to(place)
    if own is not received:
        own.detach().copy_(received)
    return own
