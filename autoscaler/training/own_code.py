"""Modules of a script's own code: all loaded modules except installed ones.

Instances may have the code at different paths, so modules are identified by name. A module may be
imported late, or on one rank only. It is compared if both replicas have loaded it.
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
    """Return the source file of each loaded module of the script's own, by module name."""
    files = {name: file for name in list(sys.modules) if (file := _source_file(name)) is not None}
    prefixes = _installed_prefixes()
    own_files = {
        name: Path(file) for name, file in files.items() if not _is_installed(Path(file), prefixes)
    }
    own_files = {name: path.resolve() for name, path in own_files.items() if path.is_file()}
    own_files = {
        name: path for name, path in own_files.items() if not _is_installed(path, prefixes)
    }
    main = own_files.get(_MAIN)
    # Modules that an installed package generates, such as kernels, have its name as root.
    roots = {name: name.partition(".")[0] for name in own_files}
    return {
        name: path
        for name, path in own_files.items()
        if name == _MAIN
        or (path != main and (roots[name] in own_files or roots[name] not in files))
    }


def slots_of(own: Mapping[str, Path]) -> list[tuple[float, str]]:
    """Return for each slot the number of its modules and contents, and its files' names."""
    main = own.get(_MAIN)
    directory = None if main is None else main.parent
    slots: list[dict[str, Path]] = [{} for _ in range(SLOTS)]
    for name, path in own.items():
        slots[digest(name) % SLOTS][name] = path
    return [_slot_content(modules, directory) for modules in slots]


def content_of(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest(*texts: str) -> int:
    """Return a 48-bit hash of texts."""
    return int(hashlib.sha256("\n".join(texts).encode()).hexdigest()[:_HEX_DIGITS], 16)


def _slot_content(modules: dict[str, Path], directory: Path | None) -> tuple[float, str]:
    names = sorted(modules)
    if not names:
        return 0.0, ""
    contents = digest(*(content_of(modules[name]) for name in names))
    # The slot depends on `digest(name)`, so the names are hashed with a prefix.
    number = slot_number(digest("names", *names), contents)
    return number, " or ".join(_display_name(name, modules[name], directory) for name in names)


def _source_file(name: str) -> str | None:
    """Return the source file of a loaded module; None if it has none."""
    # Reading an attribute of a lazy module may import more modules, so read its __dict__.
    file = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
    is_source = isinstance(file, str) and (file.endswith(".py") or name == _MAIN)
    return str(file) if is_source else None


def _installed_prefixes() -> tuple[str, ...]:
    keys = ("stdlib", "platstdlib", "purelib", "platlib")
    directories = [Path(sysconfig.get_path(key)) for key in keys]
    root = Path(__file__).parents[2]
    directories += [Path(torch.__file__).parent, *(root / package for package in _PACKAGES)]
    return tuple(
        f"{form}{os.sep}" for directory in directories for form in (directory, directory.resolve())
    )


def _is_installed(path: Path, prefixes: tuple[str, ...]) -> bool:
    return str(path).startswith(prefixes) or not _INSTALLED.isdisjoint(path.parts)


def _display_name(name: str, path: Path, directory: Path | None) -> str:
    """Return the path relative to the script's directory, or else the module's name."""
    if directory is not None and path.is_relative_to(directory):
        return str(path.relative_to(directory))
    return name
