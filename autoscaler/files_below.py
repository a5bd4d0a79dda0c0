"""Files below a directory that a job writes to, read without following links."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FileStamp:
    """Size, time of the last change and owner of a regular file.

    `path` is relative to the walked directory and uses ``/``; `user` is the owner's user id.
    """

    path: str
    bytes: int
    modified_ns: int
    user: int

    @property
    def modified_seconds(self) -> float:
        """Time of the last change, in seconds since the Unix epoch."""
        return self.modified_ns / 1e9


def walk_below(root: Path, ignored: frozenset[str] = frozenset()) -> Iterator[FileStamp]:
    """Yield the regular files below `root`, sorted by name within each directory.

    Links are left out, and so are files and directories whose name is in `ignored`.
    """
    for directory, directories, files, descriptor in os.fwalk(root, follow_symlinks=False):
        directories[:] = sorted(name for name in directories if name not in ignored)
        folder = Path(directory).relative_to(root)
        for name in sorted(files):
            if name in ignored:
                continue
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue  # the file was removed after it was listed
            if stat.S_ISREG(status.st_mode):
                yield _stamp(str(folder / name), status)


def open_below(root: Path, path: str) -> int:
    """Open the regular file `path` below `root` for reading; return its file descriptor.

    Raises:
        OSError: the file can't be read, is not regular, or a part of the path is a link.
    """
    *folders, name = path.split("/")
    directory = _open_folder(root, folders)
    try:
        descriptor = os.open(name, _FLAGS, dir_fd=directory)
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return descriptor


def remove_below(
    root: Path, folders: Sequence[str], is_chosen: Callable[[str], bool]
) -> frozenset[str]:
    """Remove the chosen files and directories of a folder below `root`; return their names.

    Raises:
        OSError: the folder does not exist, a part of its path is a link, or an entry can't be
            removed.
    """
    directory = _open_folder(root, folders)
    try:
        chosen = frozenset(name for name in os.listdir(directory) if is_chosen(name))
        for name in chosen:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                shutil.rmtree(name, dir_fd=directory)
            else:
                os.unlink(name, dir_fd=directory)
    finally:
        os.close(directory)
    return chosen


def _open_folder(root: Path, folders: Sequence[str]) -> int:
    """Open a folder below `root` without following links; return its file descriptor."""
    directory = os.open(root, _FLAGS | os.O_DIRECTORY)
    for folder in folders:
        try:
            inner = os.open(folder, _FLAGS | os.O_DIRECTORY, dir_fd=directory)
        finally:
            os.close(directory)
        directory = inner
    return directory


def stamp_of(descriptor: int, path: str) -> FileStamp:
    """Return the stamp of an open file."""
    return _stamp(path, os.fstat(descriptor))


def _stamp(path: str, status: os.stat_result) -> FileStamp:
    return FileStamp(path, status.st_size, status.st_mtime_ns, status.st_uid)
