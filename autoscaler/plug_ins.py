"""Classes by name: those of this package, and those of installed plug-ins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points

from autoscaler.domain.errors import SpecError


@dataclass(frozen=True, slots=True)
class PlugInListing:
    """Available class; `trouble` is the error that prevents its use, or None.

    `place` is where the class is: "module:Class".
    """

    name: str
    place: str
    trouble: str | None = None


class PlugIns:
    """Classes of the entry-point group `group`, and of `built_in`: "module:Class" by name.

    No plug-in replaces a built-in class. `base` is the base class of all; None requires none.
    """

    def __init__(self, group: str, built_in: Mapping[str, str], base: type | None = None) -> None:
        self._group = group
        self._built_in = built_in
        self._base = base

    def __contains__(self, name: str) -> bool:
        return name in self._places(name)

    def listings(self) -> tuple[PlugInListing, ...]:
        """Return all classes by name; one that fails to import is listed with its error."""
        listings = []
        for name, place in sorted(self._places().items()):
            try:
                self._import(place)
            except Exception as error:  # the import of a plug-in may raise anything
                listings.append(PlugInListing(name, place, _in_one_line(error)))
            else:
                listings.append(PlugInListing(name, place))
        return tuple(listings)

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self._places())

    def load(self, name: str, field: str) -> type:
        """Import and return the class of that name.

        Raises:
            SpecError: the class fails to import; the error names `field`.
        """
        try:
            return self._import(self._places(name)[name])
        except Exception as error:
            raise SpecError(f"{name} can't be used: {_in_one_line(error)}", field) from error

    def _places(self, name: str | None = None) -> Mapping[str, str]:
        """Return "module:Class" by name; only built-in classes if `name` is one of them."""
        if name in self._built_in:  # the search for plug-ins is slow
            return self._built_in
        installed = {point.name: point.value for point in entry_points(group=self._group)}
        return {**installed, **self._built_in}

    def _import(self, place: str) -> type:
        module, _, name = place.partition(":")
        loaded: type = getattr(import_module(module), name)
        if self._base is not None:
            _require_subclass(loaded, self._base)
        return loaded


def _require_subclass(loaded: object, base: type) -> None:
    """Check that `loaded` is a class with this base and without abstract methods.

    Raises:
        TypeError: `loaded` is no such class.
    """
    if not isinstance(loaded, type) or not issubclass(loaded, base):
        raise TypeError(f"{loaded!r} is no subclass of {base.__name__}")
    if missing := sorted(getattr(loaded, "__abstractmethods__", ())):
        raise TypeError(f"{loaded.__name__} lacks {', '.join(missing)}")


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
