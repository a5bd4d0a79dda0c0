"""The modules of a script's own code: all that are loaded, but for those that are installed.

Two instances may have the code at different paths, so modules are told apart by name. A module
may be imported late, or on one rank only: it is compared where both sides have loaded it.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch

from autoscaler.training.state.fingerprint import SLOTS, slot_number

_HEX_DIGITS: Final = 12
_MAIN: Final = "__main__"
_INSTALLED: Final = {"site-packages", "dist-packages"}
_PACKAGES: Final = ("autoscaler", "hpo", "providers")


def own_modules() -> dict[str, Path]:
    """Return the loaded modules with a source file of the script's own, by name."""
    files = {name: file for name in list(sys.modules) if (file := _file(name)) is not None}
    places = _installed_places()
    own = {name: Path(file) for name, file in files.items() if not _is_in(Path(file), places)}
    own = {name: path.resolve() for name, path in own.items() if path.is_file()}
    own = {name: path for name, path in own.items() if not _is_in(path, places)}
    main = own.get(_MAIN)
    # What an installed package has made and loaded, such as kernels, has its name.
    roots = {name: name.partition(".")[0] for name in own}
    return {
        name: path
        for name, path in own.items()
        if name == _MAIN or (path != main and (roots[name] in own or roots[name] not in files))
    }


def slots_of(own: Mapping[str, Path]) -> list[tuple[float, str]]:
    """Return for each slot the number of its modules and their contents, and their files."""
    main = own.get(_MAIN)
    directory = None if main is None else main.parent
    slots: list[dict[str, Path]] = [{} for _ in range(SLOTS)]
    for name, path in own.items():
        slots[digest(name) % SLOTS][name] = path
    return [_slot(modules, directory) for modules in slots]


def content_of(path: Path) -> str:
    """Return a hash of what a file holds."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest(*texts: str) -> int:
    """Return a hash of texts, of 48 bits."""
    return int(hashlib.sha256("\n".join(texts).encode()).hexdigest()[:_HEX_DIGITS], 16)


def _slot(modules: dict[str, Path], directory: Path | None) -> tuple[float, str]:
    names = sorted(modules)
    if not names:
        return 0.0, ""
    contents = digest(*(content_of(modules[name]) for name in names))
    # Names are hashed as text of their own: by `digest(name)` alone, slots would take its bits.
    number = slot_number(digest("names", *names), contents)
    return number, " or ".join(_shown(name, modules[name], directory) for name in names)


def _file(name: str) -> str | None:
    """Return the source file of a loaded module."""
    # A lazy module may import more where it is asked for an attribute.
    file = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
    is_source = isinstance(file, str) and (file.endswith(".py") or name == _MAIN)
    return str(file) if is_source else None


def _installed_places() -> tuple[str, ...]:
    keys = ("stdlib", "platstdlib", "purelib", "platlib")
    places = [Path(sysconfig.get_path(key)) for key in keys]
    root = Path(__file__).parents[2]
    places += [Path(torch.__file__).parent, *(root / package for package in _PACKAGES)]
    return tuple(f"{form}{os.sep}" for place in places for form in (place, place.resolve()))


def _is_in(path: Path, places: tuple[str, ...]) -> bool:
    return str(path).startswith(places) or not _INSTALLED.isdisjoint(path.parts)


def _shown(name: str, path: Path, directory: Path | None) -> str:
    """Return the path from the script's directory, or the module's name where it is elsewhere."""
    if directory is not None and path.is_relative_to(directory):
        return str(path.relative_to(directory))
    return name
