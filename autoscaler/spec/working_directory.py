"""Files of a job's working directory, without files ignored by the rules of git."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from autoscaler.domain.errors import SpecError

CASTOR_IGNORE = ".castorignore"
GIT_IGNORE = ".gitignore"
_ALWAYS_IGNORED = frozenset({".git", ".venv", "__pycache__"})


@dataclass(frozen=True, slots=True)
class TreeFile:
    """Regular file, or symbolic link.

    Attributes:
        name: relative path, with ``/``.
        path: absolute or relative path on this machine.
        bytes: size; 0 for a link.
        is_executable: whether the owner may execute it.
        link: target of a symbolic link; None for a file.
    """

    name: str
    path: Path
    bytes: int
    is_executable: bool
    link: str | None = None


def list_tree(directory: Path, ignore_file: str | None = None) -> list[TreeFile]:
    """Return the files and links below `directory` that are not ignored, sorted by name.

    Args:
        directory: the directory. Empty directories do not count, as in git.
        ignore_file: name of ignore files; each applies to its own directory and below. None:
            ``.castorignore`` if `directory` has one, else ``.gitignore``.

    Raises:
        SpecError: an entry is neither file, directory nor link, can't be read, or is a link that
            leaves `directory`.
    """
    if ignore_file is None:
        ignore_file = CASTOR_IGNORE if (directory / CASTOR_IGNORE).exists() else GIT_IGNORE
    files = list(_walk(directory, "", _Patterns(ignore_file)))
    leaving = [file for file in files if file.link is not None and leaves(file.path, directory)]
    if leaving:
        names = ", ".join(f"{file.name} -> {file.link}" for file in leaving[:3])
        raise SpecError(
            f"{directory}: links that leave the directory can't be packed: {names}; "
            f"make them relative to a file inside it, or list them in {CASTOR_IGNORE}"
        )
    return sorted(files, key=lambda file: file.name)


def leaves(link: Path, directory: Path) -> bool:
    """Return whether a symbolic link points out of `directory`, here or in a copy of it."""
    target = Path(os.path.realpath(link))
    return link.readlink().is_absolute() or not target.is_relative_to(os.path.realpath(directory))


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Ignore patterns from the top directory to one below; the deepest match decides.

    `stack` has the path prefix and patterns of each ignore file, the deepest first.
    """

    ignore_file: str
    stack: tuple[tuple[str, GitIgnoreSpec], ...] = ()

    def within(self, directory: Path, prefix: str) -> _Patterns:
        """Return these patterns and the patterns of the ignore file in `directory`."""
        path = directory / self.ignore_file
        if not path.is_file():
            return self
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return _Patterns(self.ignore_file, ((prefix, _compiled(lines, path)), *self.stack))

    def ignore(self, name: str) -> bool:
        """Return whether a relative path is ignored; directories end in ``/``."""
        for prefix, spec in self.stack:
            included = spec.check_file(name.removeprefix(prefix)).include
            if included is not None:
                return included
        return False


def _compiled(lines: Sequence[str], path: Path) -> GitIgnoreSpec:
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise SpecError(
            f"{path}: {str(error).splitlines()[0]}: correct or remove the pattern"
        ) from error


def _walk(directory: Path, prefix: str, above: _Patterns) -> Iterator[TreeFile]:
    try:
        patterns = above.within(directory, prefix)
        entries = list(os.scandir(directory))
    except OSError as error:
        raise SpecError(
            f"{directory}: can't be read ({error.strerror}): list it in {CASTOR_IGNORE}"
        ) from error
    for entry in entries:
        name = prefix + entry.name
        is_directory = entry.is_dir(follow_symlinks=False)
        if entry.name in _ALWAYS_IGNORED or patterns.ignore(f"{name}/" if is_directory else name):
            continue
        if is_directory:
            yield from _walk(Path(entry.path), f"{name}/", patterns)
        else:
            yield _tree_file(entry, name)


def _tree_file(entry: os.DirEntry[str], name: str) -> TreeFile:
    path = Path(entry.path)
    if entry.is_symlink():
        return TreeFile(name, path, 0, is_executable=False, link=os.readlink(path))
    if not entry.is_file(follow_symlinks=False):
        raise SpecError(
            f"{path}: is neither a file, a directory nor a link: list it in {CASTOR_IGNORE}"
        )
    status = entry.stat(follow_symlinks=False)
    return TreeFile(name, path, status.st_size, is_executable=bool(status.st_mode & 0o100))
