"""Places that the outputs of an instance are copied to: a directory, or a cloud's storage."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from autoscaler.domain.output import MANIFEST_NAME
from autoscaler.objects import Objects


class OutputPlace(Protocol):
    """One instance's outputs: contents by their SHA-256, and the manifest that names them.

    Every method raises `ProviderError` or `OSError` where the place can't be written.
    """

    @property
    def staging(self) -> Path:
        """The directory on which a file is to lie before `take`."""

    def take(self, staged: Path, sha256: str) -> None:
        """Move the content of a file of `staging` here. It is here as a whole or not at all."""

    def publish(self, manifest: bytes) -> None:
        """Replace the manifest."""

    def remove(self, sha256s: Iterable[str]) -> None:
        """Remove contents; those that are gone count as removed."""


class OutputDirectory:
    """A directory of the controller's machine. See `OutputPlace`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.staging = directory / "staging"

    def take(self, staged: Path, sha256: str) -> None:
        """Rename the file, once its content is on the disk."""
        with staged.open("rb") as file:
            os.fsync(file.fileno())
        staged.rename(self._directory / sha256)

    def publish(self, manifest: bytes) -> None:
        """Write the manifest beside its place, and rename it."""
        self._directory.mkdir(parents=True, exist_ok=True)
        unfinished = self._directory / f".{MANIFEST_NAME}"
        with unfinished.open("wb") as file:
            file.write(manifest)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self._directory / MANIFEST_NAME)

    def remove(self, sha256s: Iterable[str]) -> None:
        """Unlink the contents."""
        for sha256 in sha256s:
            with suppress(FileNotFoundError):
                (self._directory / sha256).unlink()


class StoredOutputs:
    """A folder of the job's place in a cloud's storage. See `OutputPlace`."""

    def __init__(self, objects: Objects, folder: str, staging: Path) -> None:
        self._objects = objects
        self._folder = folder
        self.staging = staging

    def take(self, staged: Path, sha256: str) -> None:
        """Upload the file, and remove it here."""
        self._objects.put(f"{self._folder}/{sha256}", staged)
        staged.unlink()

    def publish(self, manifest: bytes) -> None:
        """Upload the manifest."""
        self._objects.put(f"{self._folder}/{MANIFEST_NAME}", manifest)

    def remove(self, sha256s: Iterable[str]) -> None:
        """Remove the objects."""
        names = [f"{self._folder}/{sha256}" for sha256 in sha256s]
        if names:
            self._objects.remove(names)
