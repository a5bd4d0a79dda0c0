"""State received from another rank: its description, and the memory that receives it.

Of a sharded tensor a rank sends and receives its own part. The description says how the whole
tensor is laid out, so that the receiver can make it anew. Only the receiver's mesh is used.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._pytree import (
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_map,
    tree_unflatten,
)

from autoscaler.training.gradients.parts import layout_of, local_part, with_layout

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Description:
    """Tree of plain values with tensors that have a shape and a type, but no memory.

    Attributes:
        tree: the tree; of a sharded tensor it has the sender's part.
        on_host: for each tensor, whether it is in CPU memory at the sender.
        layouts: for each tensor, the layout of the whole one; None if it is not sharded.
    """

    tree: Any
    on_host: list[bool]
    layouts: list[dict[str, Any] | None]

    def to_bytes(self) -> bytes:
        """Serialise the description."""
        buffer = io.BytesIO()
        values = {"tree": self.tree, "on_host": self.on_host, "layouts": self.layouts}
        torch.save(values, buffer)
        return buffer.getvalue()


def describe(tree: Any) -> Description:
    """Return the description of a tree."""
    tensors = [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]
    on_host = [tensor.device.type == "cpu" for tensor in tensors]
    layouts = [layout_of(tensor) for tensor in tensors]
    return Description(tree_map(_as_meta, tree), on_host, layouts)


def description_from(content: bytes) -> Description:
    """Deserialise a description. Only tensors and plain containers are loaded.

    Raises:
        RuntimeError, pickle.UnpicklingError: the bytes are no description.
    """
    return Description(**torch.load(io.BytesIO(content), weights_only=True))


def tensors_of(tree: Any) -> list[Tensor]:
    """Return the tensors of a tree, in tree order; of sharded ones this rank's parts."""
    return [local_part(leaf) for leaf in tree_flatten(tree)[0] if isinstance(leaf, Tensor)]


class StateBuffer:
    """Memory for a described state, on `device` or the CPU as at its sender.

    `tensors` are the tensors to fill, in the order of the description. In place, they are the
    tensors of `own` with the same name, type and shape, so that no further memory is needed.
    Otherwise all of them are new CPU tensors, and `own` stays unchanged until `complete`.

    Args:
        own: this rank's state, with the names of the description.
        description: state that will be received.
        device: device of this rank's model.
        in_place: whether to receive into the tensors of `own`.
        mesh: mesh of this rank's model if it is sharded.
    """

    def __init__(
        self,
        own: Any,
        description: Description,
        device: torch.device,
        in_place: bool,
        mesh: DeviceMesh | None = None,
    ) -> None:
        named, self._structure = tree_flatten_with_path(description.tree)
        on_host, self._layouts, self._mesh = iter(description.on_host), description.layouts, mesh
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
            matching = present if isinstance(present, Tensor) else None
            matching = None if matching is None else local_part(matching)
            matching = matching if _is_alike(matching, leaf) else None
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
        """Return the tree once all tensors are filled, in the memory of `own` where they fit."""
        placed = zip(self.tensors, self._own_tensors, self._devices, strict=True)
        parts = (_in_own_memory(*place) for place in placed)
        received = iter(
            part if layout is None or self._mesh is None else with_layout(part, layout, self._mesh)
            for part, layout in zip(parts, self._layouts, strict=True)
        )
        leaves = [next(received) if isinstance(leaf, Tensor) else leaf for leaf in self._leaves]
        return tree_unflatten(leaves, self._structure)


def _as_meta(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return torch.empty(local_part(leaf).shape, dtype=leaf.dtype, device="meta")


def _is_alike(present: Tensor | None, described: Tensor) -> bool:
    return (
        present is not None
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
        current.copy_(received)
    return current
