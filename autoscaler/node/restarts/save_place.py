"""Places for the saves of a restartable job: its cloud storage, or a directory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Protocol

from autoscaler.domain.errors import NotFound
from autoscaler.objects import Objects

_FOLDER = "restarts"


class SavePlace(Protocol):
    """Files by name, written as a whole or not at all.

    Every method raises `ProviderError` or `OSError` if the place can't be reached.
    """

    def put(self, name: str, content: bytes | Path) -> None:
        """Write a file with this content, or with this file's content."""

    def get(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            NotFound: the file does not exist.
        """

    def download(self, name: str, path: Path) -> None:
        """Write the content of a file to `path`.

        Raises:
            NotFound: the file does not exist.
        """

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder and its folders, with the folder, sorted."""

    def remove(self, names: Iterable[str]) -> None:
        """Delete files; missing files are ignored."""


class SaveDirectory:
    """Place in a directory that all instances of the job share. See `SavePlace`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / _FOLDER

    def put(self, name: str, content: bytes | Path) -> None:
        """Write the file under a temporary name, sync it to the disk, and rename it."""
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}")
        with unfinished.open("wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                with content.open("rb") as source:
                    shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)

    def get(self, name: str) -> bytes:
        """Return the content of a file. See `SavePlace.get`."""
        with _missing_as_not_found(name):
            return (self._directory / name).read_bytes()

    def download(self, name: str, path: Path) -> None:
        """Copy a file to `path`. See `SavePlace.download`."""
        with _missing_as_not_found(name):
            shutil.copyfile(self._directory / name, path)

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder. See `SavePlace.names`."""
        paths = (self._directory / folder).rglob("*")
        return sorted(
            str(path.relative_to(self._directory))
            for path in paths
            if not path.name.startswith(".") and path.is_file()
        )

    def remove(self, names: Iterable[str]) -> None:
        """Delete files, and folders that are empty then."""
        for name in names:
            path = self._directory / name
            path.unlink(missing_ok=True)
            with suppress(OSError):  # the folder is not empty
                path.parent.rmdir()


class StoredSaves:
    """Place in the job's cloud storage, which is opened at the first use. See `SavePlace`."""

    def __init__(self, open_objects: Callable[[], Objects]) -> None:
        self._open_objects = open_objects

    @cached_property
    def _objects(self) -> Objects:
        return self._open_objects()

    def put(self, name: str, content: bytes | Path) -> None:
        """Upload a file."""
        self._objects.put(f"{_FOLDER}/{name}", content)

    def get(self, name: str) -> bytes:
        """Return the content of a file. See `SavePlace.get`."""
        return self._objects.get(f"{_FOLDER}/{name}")

    def download(self, name: str, path: Path) -> None:
        """Download a file. See `SavePlace.download`."""
        self._objects.download(f"{_FOLDER}/{name}", path)

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects in a folder. See `SavePlace.names`."""
        listed = self._objects.listed(f"{_FOLDER}/{folder}")
        return [stored.name.removeprefix(f"{_FOLDER}/") for stored in listed]

    def remove(self, names: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored."""
        whole_names = [f"{_FOLDER}/{name}" for name in names]
        if whole_names:
            self._objects.remove(whole_names)


@contextmanager
def _missing_as_not_found(name: str) -> Iterator[None]:
    """Turn the error of a missing file into `NotFound`."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"{name}: there is no such file") from error
