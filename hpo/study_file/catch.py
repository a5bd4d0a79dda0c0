"""The classes of errors that a study file's `catch` names, found by their modules."""

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
class Catch:
    """Names of error classes: `names` as errors report them, of which `unfound` are not checked.

    The module of an unfound class is not installed on this machine.
    """

    names: frozenset[str]
    unfound: tuple[str, ...] = ()

    def checking(self, objective: Objective) -> Objective:
        """Return the objective; each trial first looks for the unfound classes on its instance."""
        return CheckedObjective(objective, self.unfound) if self.unfound else objective


class CheckedObjective:
    """An objective whose trials fail at their start where a class in `catch` does not exist."""

    def __init__(self, objective: Objective, names: Sequence[str]) -> None:
        """Wrap `objective`; `names` are the classes to look for."""
        update_wrapper(self, objective)
        self._objective = objective
        self._names = tuple(names)

    def __call__(self, trial: Any) -> Any:
        """Run the objective.

        Raises:
            SpecError: a class does not exist on this instance, or has another name there.
        """
        for name in self._names:
            found = error_class(name)
            if found is None:
                module = name.partition(".")[0]
                raise SpecError(f'no module "{module}" is installed on this instance', FIELD)
            if _full_name(found) != name:
                raise SpecError(f'write "{_full_name(found)}" in place of "{name}"', FIELD)
        return self._objective(trial)


def catch_of(names: Sequence[str]) -> Catch:
    """Return the classes that a study file names.

    Raises:
        SpecError: a module that is installed here has no such class.
    """
    classes = {name: error_class(name) for name in names if "." in name}
    full = [_full_name(found) if (found := classes.get(name)) else name for name in names]
    return Catch(frozenset(full), tuple(name for name, found in classes.items() if not found))


def error_class(name: str) -> type[Exception] | None:
    """Return the class of a name with its module; None if the module can't be imported here.

    Raises:
        SpecError: the module has no such class.
    """
    first, *parts = name.split(".")
    try:
        if importlib.util.find_spec(first) is None:
            return None
        found: Any = importlib.import_module(first)
        for part in parts:
            found = _member(found, part, name)
    except ImportError:
        return None
    if not (isinstance(found, type) and issubclass(found, Exception)):
        raise SpecError(f'"{name}" is no class of errors (a subclass of Exception)', FIELD)
    return found


def _member(owner: Any, name: str, full: str) -> Any:
    if hasattr(owner, name):
        return getattr(owner, name)
    path = f"{owner.__name__}.{name}"
    is_package = isinstance(owner, ModuleType) and hasattr(owner, "__path__")
    if is_package and importlib.util.find_spec(path) is not None:
        return importlib.import_module(path)
    begin = full[: -len(name)] if full.endswith(name) else f"{owner.__name__}."
    close = [f'"{begin}{each}"' for each in get_close_matches(name, dir(owner), n=2)]
    hint = f": did you mean {' or '.join(close)}?" if close else ""
    raise SpecError(f'"{full}": {owner.__name__} has no "{name}"{hint}', FIELD)


def _full_name(kind: type[Exception]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
