"""Files below a directory that a job writes to, read without following links."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CHUNK_BYTES: Final = 1 << 20
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


def walk_below(
    root: Path,
    ignored: frozenset[str] = frozenset(),
    enters: Callable[[str], bool] = lambda path: True,
) -> Iterator[FileStamp]:
    """Yield the regular files below `root`, sorted by name within each directory.

    Links are left out, and so are files and directories whose name is in `ignored`, and
    directories whose path below `root` the function `enters` refuses.
    """
    for directory, directories, files, descriptor in os.fwalk(root, follow_symlinks=False):
        folder = Path(directory).relative_to(root)
        directories[:] = sorted(
            name for name in directories if name not in ignored and enters(str(folder / name))
        )
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


def copy_below(root: Path, file: FileStamp, source: Path) -> None:
    """Copy the file `source` to the path of `file` below `root`, with its owner and time.

    Missing folders are created. A file or link in that place is replaced.

    Raises:
        OSError: the file can't be written, or a folder of the path is a link or a file.
    """
    *folders, name = file.path.split("/")
    directory = _make_folder(root, folders, file.user)
    unfinished = f".{name[:100]}.unfinished"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with suppress(FileNotFoundError):
            os.unlink(unfinished, dir_fd=directory)
        descriptor = os.open(unfinished, flags, 0o644, dir_fd=directory)
        with source.open("rb") as content, os.fdopen(descriptor, "wb") as copy:
            shutil.copyfileobj(content, copy, _CHUNK_BYTES)
            copy.flush()
            _give(descriptor, file.user)
            os.utime(descriptor, ns=(file.modified_ns, file.modified_ns))
        os.replace(unfinished, name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        os.close(directory)


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


def _make_folder(root: Path, folders: Sequence[str], user: int) -> int:
    """Open a folder below `root` as `_open_folder` does; create missing ones for `user`."""
    directory = _open_folder(root, ())
    for folder in folders:
        try:
            with suppress(FileExistsError):
                os.mkdir(folder, 0o755, dir_fd=directory)
            inner = os.open(folder, _FLAGS | os.O_DIRECTORY, dir_fd=directory)
        finally:
            os.close(directory)
        directory = inner
        _give(directory, user)
    return directory


def _give(descriptor: int, user: int) -> None:
    """Make `user` the owner of an open file or folder, unless the user owns it already."""
    if os.fstat(descriptor).st_uid != user:
        os.fchown(descriptor, user, user)


def stamp_of(descriptor: int, path: str) -> FileStamp:
    """Return the stamp of an open file."""
    return _stamp(path, os.fstat(descriptor))


def _stamp(path: str, status: os.stat_result) -> FileStamp:
    return FileStamp(path, status.st_size, status.st_mtime_ns, status.st_uid)
