"""Safe paths: no path built here leaves its root directory."""

from __future__ import annotations

from pathlib import PurePath, PurePosixPath
from typing import Final, TypeVar

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import has_controls, quoted

AnyPath = TypeVar("AnyPath", bound=PurePath)

_LONGEST_NAME_BYTES: Final = 255  # limit of one file name in Linux file systems
_LONGEST_PATH: Final = 1_000


def inside(root: AnyPath, *names: str) -> AnyPath:
    """Return the path of `names` below `root`; each name is one file or directory.

    Every path that is built from a name must be built by this function.

    Raises:
        SpecError: a name is blank, ``.`` or ``..``, or contains a ``/`` or a control character.
    """
    for name in names:
        if not _is_file_name(name):
            raise SpecError(f"{quoted(name)} can't be the name of a file: use letters, digits, -")
    return root.joinpath(*names)


def relative_names(path: str, field: str) -> tuple[str, ...]:
    """Return the components of a relative path, for `inside`.

    Raises:
        SpecError: the path is absolute, leaves its directory, or is not a valid path.
    """
    names = PurePosixPath(path).parts
    if not names or len(path) > _LONGEST_PATH or not all(_is_file_name(name) for name in names):
        raise SpecError(
            f"{quoted(path)} must be a path inside the job's own tree, like data", field
        )
    return names


def require_absolute_path(path: str, field: str) -> None:
    """Check an absolute path on an instance.

    Raises:
        SpecError: the path is not absolute, contains ``..``, or is not a valid path.
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
