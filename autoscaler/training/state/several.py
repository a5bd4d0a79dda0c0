"""What a script gives as one object or as a list of several, such as optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar, cast

_Given = TypeVar("_Given")


class _HasState(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


def each_of(given: _Given | Sequence[_Given] | None) -> tuple[_Given, ...]:
    """Return all that is given: none, one, or a list or tuple of several."""
    if given is None:
        return ()
    if isinstance(given, (list, tuple)):
        return tuple(given)
    return (cast(_Given, given),)


def states_of(holders: Sequence[_HasState]) -> Any:
    """Return the state of one holder, a list of the states of several, or None."""
    states = [holder.state_dict() for holder in holders]
    return states if len(states) > 1 else next(iter(states), None)


def load_states(holders: Iterable[_HasState], states: Any) -> None:
    """Give each of the holders its state of those that `states_of` has returned, by its place."""
    for holder, state in zip(holders, each_of(states), strict=False):
        holder.load_state_dict(state)
