"""Arguments that are one object or a list of several, such as optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar, cast

_Given = TypeVar("_Given")


class _HasState(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


def each_of(given: _Given | Sequence[_Given] | None) -> tuple[_Given, ...]:
    """Return the given objects as a tuple: empty for None, else one or several."""
    if given is None:
        return ()
    if isinstance(given, (list, tuple)):
        return tuple(given)
    return (cast(_Given, given),)


def states_of(holders: Sequence[_HasState]) -> Any:
    """Return the state of one holder, a list of states of several, or None for no holder."""
    states = [holder.state_dict() for holder in holders]
    return states if len(states) > 1 else next(iter(states), None)


def load_states(holders: Iterable[_HasState], states: Any) -> None:
    """Load each holder's state from the result of `states_of`, in the same order."""
    for holder, state in zip(holders, each_of(states), strict=False):
        holder.load_state_dict(state)
