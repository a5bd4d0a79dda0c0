"""Destinations of an instance's outputs: a directory, or a cloud's storage."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from autoscaler.domain.output import MANIFEST_NAME
from autoscaler.objects import Objects


class OutputPlace(Protocol):
    """Destination of one instance's outputs: contents by SHA-256, and a manifest that names them.

    Every method raises `ProviderError` or `OSError` if the destination can't be written.
    """

    @property
    def staging(self) -> Path:
        """Directory that must contain a file before `take`."""

    def take(self, staged: Path, sha256: str) -> None:
        """Move a file from `staging` to the destination, as a whole or not at all."""

    def publish(self, manifest: bytes) -> None:
        """Replace the manifest."""

    def remove(self, sha256s: Iterable[str]) -> None:
        """Delete contents; missing contents are ignored."""


class OutputDirectory:
    """Destination in a directory of the controller's machine. See `OutputPlace`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.staging = directory / "staging"

    def take(self, staged: Path, sha256: str) -> None:
        """Sync the file to the disk, then rename it."""
        with staged.open("rb") as file:
            os.fsync(file.fileno())
        staged.rename(self._directory / sha256)

    def publish(self, manifest: bytes) -> None:
        """Write the manifest to a temporary file, then rename it."""
        self._directory.mkdir(parents=True, exist_ok=True)
        unfinished = self._directory / f".{MANIFEST_NAME}"
        with unfinished.open("wb") as file:
            file.write(manifest)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(self._directory / MANIFEST_NAME)

    def remove(self, sha256s: Iterable[str]) -> None:
        """Delete the files of the contents."""
        for sha256 in sha256s:
            with suppress(FileNotFoundError):
                (self._directory / sha256).unlink()


class StoredOutputs:
    """Destination in a folder of the job's cloud storage. See `OutputPlace`."""

    def __init__(self, objects: Objects, folder: str, staging: Path) -> None:
        self._objects = objects
        self._folder = folder
        self.staging = staging

    def take(self, staged: Path, sha256: str) -> None:
        """Upload the file, then delete the local file."""
        self._objects.put(f"{self._folder}/{sha256}", staged)
        staged.unlink()

    def publish(self, manifest: bytes) -> None:
        """Upload the manifest."""
        self._objects.put(f"{self._folder}/{MANIFEST_NAME}", manifest)

    def remove(self, sha256s: Iterable[str]) -> None:
        """Delete the objects of the contents."""
        names = [f"{self._folder}/{sha256}" for sha256 in sha256s]
        if names:
            self._objects.remove(names)
