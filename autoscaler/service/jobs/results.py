"""Outputs and checkpoints of jobs, on disk or in storage.

Jobs write these files. Names and hashes are checked before use, and links are not followed.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from autoscaler.domain.checkpoint import MANIFEST, step_of
from autoscaler.domain.errors import NotFound, SpecError, Unavailable
from autoscaler.domain.job import JobRecord
from autoscaler.domain.output import (
    MANIFEST_NAME,
    OutputManifest,
    is_output_path,
    require_sound,
)
from autoscaler.domain.rules import require_sha256
from autoscaler.domain.storage import output_folder
from autoscaler.files_below import open_below
from autoscaler.objects import Objects
from autoscaler.service.files.stored import StoredFiles
from autoscaler.service.instances.assignments import Assignments
from autoscaler.wire.codec import decode
from autoscaler.wire.results import CheckpointFile, CheckpointView, OutputsView

_CHUNK_BYTES: Final = 1 << 20
_MOST_MANIFEST_BYTES: Final = 64 << 20


class Folder(ABC):
    """Tree of files on a disk or in a storage; names use ``/``."""

    @abstractmethod
    def folders(self) -> list[str]:
        """Return the names of the direct subfolders."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Return the size of a file in bytes.

        Raises:
            NotFound: there is no such file.
        """

    @abstractmethod
    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file.

        Raises:
            NotFound: there is no such file.
        """

    def content(self, name: str) -> bytes:
        """Return the content of a small file.

        Raises:
            NotFound: there is no such file, or it is not small.
        """
        if self.size(name) > _MOST_MANIFEST_BYTES:
            raise NotFound(f"{name} is too large to be read")
        return b"".join(self.chunks(name))


class DiskFolder(Folder):
    """Directory that a job may write to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def folders(self) -> list[str]:
        """Return the subdirectories without links; empty if the directory is missing."""
        try:
            entries = list(os.scandir(self._directory))
        except OSError:
            return []
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def size(self, name: str) -> int:
        """Return the size of a file in bytes, without following links."""
        descriptor = self._open(name)
        try:
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file, without following links."""
        with os.fdopen(self._open(name), "rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk

    def _open(self, name: str) -> int:
        try:
            return open_below(self._directory, name)
        except OSError as error:
            raise NotFound(f"{name}: {error.strerror or error}") from error


class StoredFolder(Folder):
    """Folder in the storage of all jobs."""

    def __init__(self, objects: Objects, folder: str) -> None:
        self._objects = objects
        self._folder = folder

    def folders(self) -> list[str]:
        """Return the common prefixes."""
        return self._objects.folders(self._folder)

    def size(self, name: str) -> int:
        """Return the size of an object in bytes."""
        return self._objects.size(f"{self._folder}/{name}")

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of an object."""
        return self._objects.chunks(f"{self._folder}/{name}")


class Results:
    """Outputs and checkpoints of all jobs of a deployment."""

    def __init__(self, assignments: Assignments, stored: StoredFiles | None) -> None:
        self._assignments = assignments
        self._stored = stored

    def outputs(self, job: JobRecord) -> OutputsView:
        """Return the manifests of the job's outputs.

        Raises:
            Unavailable: the storage does not respond, or a manifest is invalid.
        """
        folder, manifests = self._output_folder(job), []
        for instance in folder.folders():
            try:
                manifest = decode(OutputManifest, folder.content(f"{instance}/{MANIFEST_NAME}"))
                manifests.append(require_sound(replace(manifest, instance=instance)))
            except NotFound:
                continue  # the instance has no complete manifest yet
            except SpecError as error:
                raise Unavailable(f"the outputs of {instance} can't be listed: {error}") from error
        return OutputsView(job.id, tuple(manifests))

    def output(self, job: JobRecord, instance: str, sha256: str) -> tuple[int, Iterator[bytes]]:
        """Return the size in bytes and the content of one output.

        Raises:
            NotFound: there is no such output, or a newer one replaced it.
            SpecError: `sha256` is invalid.
            Unavailable: the storage does not respond.
        """
        name, folder = f"{instance}/{sha256}", self._output_folder(job)
        require_sha256(sha256)
        if not is_output_path(name) or name.count("/") != 1:
            raise NotFound(f"{sha256[:12]} is no output of {job.id}")
        return folder.size(name), folder.chunks(name)

    def checkpoint(self, job: JobRecord) -> CheckpointView:
        """Return the newest complete checkpoint.

        Raises:
            NotFound: there is none, or the controller can't access it.
            Unavailable: the storage does not respond.
        """
        place, folder = self._assignments.checkpoint_place(job), self._checkpoint_folder(job)
        names = [name for name in folder.folders() if step_of(name) is not None]
        for name in sorted(names, reverse=True):
            try:
                files = _manifest_files(folder, name)
            except NotFound:
                continue  # the checkpoint is incomplete, or was just removed
            return CheckpointView(job.id, place, name, step_of(name) or 0, files)
        raise NotFound(f"{job.id} has no whole checkpoint in {place}")

    def has_disk_of_instances(self, job: JobRecord) -> bool:
        """Return whether the job's checkpoints are on a disk of the instances.

        The controller may have no access to it.
        """
        return PurePosixPath(job.spec.checkpoint.directory or "").is_absolute()

    def checkpoint_file(
        self, job: JobRecord, checkpoint: str, name: str
    ) -> tuple[int, Iterator[bytes]]:
        """Return the size in bytes and the content of a file of a checkpoint.

        Raises:
            NotFound: there is no such file; newer checkpoints may have replaced it.
            Unavailable: the storage does not respond.
        """
        path, folder = f"{checkpoint}/{name}", self._checkpoint_folder(job)
        if step_of(checkpoint) is None or not is_output_path(path) or path.count("/") != 1:
            raise NotFound(f"{path} is no file of a checkpoint of {job.id}")
        return folder.size(path), folder.chunks(path)

    def _output_folder(self, job: JobRecord) -> Folder:
        if self._stored is None:
            return DiskFolder(self._assignments.outputs_directory(job))
        return StoredFolder(*self._stored.folder(job, output_folder()))

    def _checkpoint_folder(self, job: JobRecord) -> Folder:
        folder = None if self._stored is None else self._stored.checkpoints(job)
        if folder is None:
            return DiskFolder(self._assignments.checkpoint_directory(job))
        return StoredFolder(*folder)


def _manifest_files(folder: Folder, checkpoint: str) -> tuple[CheckpointFile, ...]:
    """Return the files that a checkpoint's manifest names, and the manifest itself.

    Raises:
        NotFound: the manifest or a file is missing, or the manifest is invalid.
    """
    manifest = folder.content(f"{checkpoint}/{MANIFEST}")
    try:
        hashes: Mapping[str, Any] = json.loads(manifest)["sha256"]
        named = {str(name): str(sha256) for name, sha256 in hashes.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotFound(f"{checkpoint}/{MANIFEST} can't be read: {error}") from error
    if not all(is_output_path(name) and "/" not in name for name in named):
        raise NotFound(f"{checkpoint}/{MANIFEST} names files elsewhere")
    files = tuple(
        CheckpointFile(name, folder.size(f"{checkpoint}/{name}"), sha256)
        for name, sha256 in sorted(named.items())
        if name != MANIFEST
    )
    return (*files, CheckpointFile(MANIFEST, len(manifest), hashlib.sha256(manifest).hexdigest()))
