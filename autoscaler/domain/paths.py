"""Paths that are made from names. No such path leaves the directory that it is made in."""

from __future__ import annotations

from pathlib import PurePath, PurePosixPath
from typing import Final, TypeVar

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import has_controls, quoted

AnyPath = TypeVar("AnyPath", bound=PurePath)

_LONGEST_NAME_BYTES: Final = 255  # of one file name, on the file systems of Linux
_LONGEST_PATH: Final = 1_000


def inside(root: AnyPath, *names: str) -> AnyPath:
    """Return the path of `names` below `root`, each of them the name of one file or directory.

    Every path that is made from a name comes from here.

    Raises:
        SpecError: a name is blank, ``.`` or ``..``, or holds a ``/`` or a control character.
    """
    for name in names:
        if not _is_file_name(name):
            raise SpecError(f"{quoted(name)} can't be the name of a file: use letters, digits, -")
    return root.joinpath(*names)


def relative_names(path: str, field: str) -> tuple[str, ...]:
    """Return the names that a relative path leads through, for `inside`.

    Raises:
        SpecError: the path is absolute, leaves its directory, or can't be one.
    """
    names = PurePosixPath(path).parts
    if not names or len(path) > _LONGEST_PATH or not all(_is_file_name(name) for name in names):
        raise SpecError(
            f"{quoted(path)} must be a path inside the job's own tree, like data", field
        )
    return names


def require_absolute_path(path: str, field: str) -> None:
    """Check a path on an instance.

    Raises:
        SpecError: the path is not absolute, holds ``..``, or can't be one.
    """
    parsed = PurePosixPath(path)
    names = parsed.parts[1:]
    if (
        not parsed.is_absolute()
        or len(path) > _LONGEST_PATH
        or not all(_is_file_name(name) for name in names)
    ):
        raise SpecError(
            f"{quoted(path)} must be an absolute path on the instances, like /datasets", field
        )


def _is_file_name(name: str) -> bool:
    return (
        name.strip() not in ("", ".", "..")
        and "/" not in name
        and not has_controls(name)
        and len(name.encode(errors="replace")) <= _LONGEST_NAME_BYTES
    )
