"""Error classes that a study file's `catch` names."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import update_wrapper
from types import ModuleType
from typing import Any, Final

from autoscaler.domain.errors import SpecError
from hpo.objective.packaging import Objective

FIELD: Final = "catch"


@dataclass(frozen=True, slots=True)
class CaughtErrors:
    """Full names of error classes.

    `unchecked` classes are in modules that are not installed here.
    """

    names: frozenset[str]
    unchecked: tuple[str, ...] = ()

    def checking(self, objective: Objective) -> Objective:
        """Return the objective; each trial first checks the unchecked classes on its instance."""
        return CheckedObjective(objective, self.unchecked) if self.unchecked else objective


class CheckedObjective:
    """Objective that fails at its start if a class in `catch` does not exist on the instance."""

    def __init__(self, objective: Objective, names: Sequence[str]) -> None:
        """Wrap `objective`; `names` are the classes to check."""
        update_wrapper(self, objective)
        self._objective = objective
        self._names = tuple(names)

    def __call__(self, trial: Any) -> Any:
        """Check the classes, then run the objective.

        Raises:
            SpecError: a class does not exist on this instance, or has another name there.
        """
        for name in self._names:
            error_class = find_error_class(name)
            if error_class is None:
                module = name.partition(".")[0]
                raise SpecError(f'no module "{module}" is installed on this instance', FIELD)
            if _full_name(error_class) != name:
                raise SpecError(f'write "{_full_name(error_class)}" in place of "{name}"', FIELD)
        return self._objective(trial)


def resolve_caught_errors(names: Sequence[str]) -> CaughtErrors:
    """Resolve the error classes that a study file names.

    Raises:
        SpecError: an installed module has no such class.
    """
    classes = {name: find_error_class(name) for name in names if "." in name}
    full_names = [
        _full_name(error_class) if (error_class := classes.get(name)) else name for name in names
    ]
    return CaughtErrors(
        frozenset(full_names),
        tuple(name for name, error_class in classes.items() if not error_class),
    )


def find_error_class(name: str) -> type[Exception] | None:
    """Return the class of a dotted name; None if its module can't be imported here.

    Raises:
        SpecError: the module has no such class.
    """
    first, *parts = name.split(".")
    try:
        if importlib.util.find_spec(first) is None:
            return None
        member: Any = importlib.import_module(first)
        for part in parts:
            member = _member(member, part, name)
    except ImportError:
        return None
    if not (isinstance(member, type) and issubclass(member, Exception)):
        raise SpecError(f'"{name}" is no class of errors (a subclass of Exception)', FIELD)
    return member


def _member(owner: Any, name: str, full: str) -> Any:
    if hasattr(owner, name):
        return getattr(owner, name)
    path = f"{owner.__name__}.{name}"
    is_package = isinstance(owner, ModuleType) and hasattr(owner, "__path__")
    if is_package and importlib.util.find_spec(path) is not None:
        return importlib.import_module(path)
    begin = full[: -len(name)] if full.endswith(name) else f"{owner.__name__}."
    close = [f'"{begin}{match}"' for match in get_close_matches(name, dir(owner), n=2)]
    hint = f": did you mean {' or '.join(close)}?" if close else ""
    raise SpecError(f'"{full}": {owner.__name__} has no "{name}"{hint}', FIELD)


def _full_name(kind: type[Exception]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
