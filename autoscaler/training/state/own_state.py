"""Script-defined state that checkpoints hold and joining replicas receive."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map_with_path

_PLAIN: Final = (bool, int, float, str, bytes, type(None), torch.Tensor)


class ScriptState:
    """Named values of a script: plain values, and objects with a `state_dict`.

    Plain values are numbers, strings, bytes, tensors and None, and lists, tuples and dicts of
    these.
    """

    def __init__(self, values: MutableMapping[str, Any] | None) -> None:
        self._values = {} if values is None else values
        self.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """Return all values by name; an object is replaced by its `state_dict`.

        Raises:
            TypeError: a value is not plain, so no checkpoint of it could be read.
        """
        state = {
            name: value.state_dict() if _is_stateful(value) else value
            for name, value in self._values.items()
        }
        for name, value in state.items():
            _require_plain(value, f"state[{name!r}]")
        return state

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Set all saved values; values that were not saved stay unchanged."""
        for name, value in saved.items():
            present: Any = self._values.get(name)
            if _is_stateful(present):
                present.load_state_dict(value)
            else:
                self._values[name] = value


def without_shards(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, DTensor]]:
    """Return the state with None in place of each sharded tensor, and these tensors by path."""
    shards = {path: leaf for path, leaf in _tensors_of(state).items() if isinstance(leaf, DTensor)}
    return _replaced(state, dict.fromkeys(shards)), shards


def shards_to_read(state: Mapping[str, Any], saved: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a tensor to fill for each path in `saved`, whose tensors have no memory.

    It is sharded as the tensor of this path in the script's `state`, or whole without one.
    """
    present = _tensors_of(state)
    return {
        path: torch.empty_like(present[path].detach())
        if path in present
        else torch.empty_like(described, device="cpu")
        for path, described in saved.items()
    }


def with_shards(
    saved: Mapping[str, Any], shards: Mapping[str, Tensor], state: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the saved state with the sharded tensors that were read, by path, put back.

    A whole tensor that the script's `state` has in shards is sharded in the same way.
    """
    present, values = _tensors_of(state), dict(shards)
    for path, leaf in _tensors_of(saved).items():
        layout = present.get(path)
        if isinstance(layout, DTensor) and not isinstance(leaf, DTensor):
            mesh, placements = layout.device_mesh, layout.placements
            on_device = leaf.to(layout.device)
            values[path] = distribute_tensor(on_device, mesh, placements, src_data_rank=None)
    return _replaced(saved, values)


def _tensors_of(state: Mapping[str, Any]) -> dict[str, Tensor]:
    named, _ = tree_flatten_with_path(dict(state))
    return {keystr(path): leaf for path, leaf in named if isinstance(leaf, Tensor)}


def _replaced(state: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    replaced: dict[str, Any] = tree_map_with_path(
        lambda path, leaf: values.get(keystr(path), leaf), dict(state)
    )
    return replaced


def _is_stateful(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _require_plain(value: Any, place: str) -> None:
    if type(value) in _PLAIN or isinstance(value, torch.Tensor):
        return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _require_plain(key, f"a key of {place}")
            _require_plain(inner, f"{place}[{key!r}]")
    elif type(value) in (list, tuple):
        for number, inner in enumerate(value):
            _require_plain(inner, f"{place}[{number}]")
    else:
        raise TypeError(
            f"{place} is a {type(value).__name__}, which no checkpoint can hold: make it a "
            "number, a text or a tensor, as float(...) does, or an object with a state_dict"
        )
