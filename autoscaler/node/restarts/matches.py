"""Matches of a job's checkpoint pattern: files, or directories with all files below them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from autoscaler.domain.output import is_output_path
from autoscaler.files_below import FileStamp, walk_below

_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Match:
    """File or directory that matches the pattern, with its regular files.

    `name` is its path below the root of the pattern, and `files` have paths below that root.
    """

    name: str
    files: tuple[FileStamp, ...]

    @property
    def modified_ns(self) -> int:
        """Time of the last change of one of the files, in nanoseconds since the Unix epoch."""
        return max(file.modified_ns for file in self.files)

    @property
    def bytes(self) -> int:
        """Size of all files together."""
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Glob of checkpoints below `root`; each of `parts` matches one name of a path."""

    root: Path
    parts: tuple[str, ...]

    def matches(self, user: int | None = None) -> list[Match]:
        """Return all matches, the latest last; empty if the root does not exist.

        Links are left out, and so are files of other users than `user`; None includes all users.
        """
        files: dict[str, list[FileStamp]] = {}
        if not self.root.is_dir():
            return []
        for file in walk_below(self.root, enters=self._may_enter):
            name = self._match_of(file.path)
            if name is not None and user in (None, file.user) and is_output_path(file.path):
                files.setdefault(name, []).append(file)
        return sorted_by_time(Match(name, tuple(parts)) for name, parts in files.items())

    def _match_of(self, path: str) -> str | None:
        """Return the path of the match that contains a file; None if no match does."""
        names = path.split("/")
        count = len(self.parts)
        if len(names) < count or not self._fits(names[:count]):
            return None
        return "/".join(names[:count])

    def _may_enter(self, path: str) -> bool:
        return self._fits(path.split("/")[: len(self.parts)])

    def _fits(self, names: list[str]) -> bool:
        return all(map(fnmatchcase, names, self.parts))


def pattern_below(work: Path, checkpoint: str) -> Pattern:
    """Return the pattern of `RestartSpec.checkpoint`, whose relative globs are below `work`.

    The root of an absolute glob is its longest directory without wildcards.
    """
    path = PurePosixPath(checkpoint)
    if not path.is_absolute():
        return Pattern(work, path.parts)
    names = list(path.parts[1:])
    root = Path("/")
    while len(names) > 1 and _WILDCARDS.isdisjoint(names[0]):
        root /= names.pop(0)
    return Pattern(root, tuple(names))


def sorted_by_time(matches: Iterable[Match]) -> list[Match]:
    """Return matches by the time of their last change, the latest last."""
    return sorted(matches, key=lambda match: (match.modified_ns, match.name))
