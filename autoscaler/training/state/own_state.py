"""Script-defined state that checkpoints hold and joining replicas receive."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import torch

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
