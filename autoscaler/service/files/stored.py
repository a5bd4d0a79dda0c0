"""Files of jobs in a cloud's storage, for instances that share no disk.

The prefix of a job holds its checkpoints, in a folder that the job file may name, and its logs.
Trials of a study share a prefix.
"""

from __future__ import annotations

import logging
import re
import threading
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Final

from autoscaler.domain.errors import ProviderError, SpecError
from autoscaler.domain.job import JobRecord, JobSpec
from autoscaler.domain.storage import StorageGrant
from autoscaler.objects import Objects
from autoscaler.service.files.uploads import Bundles
from providers.storage import JobStorage

_log = logging.getLogger(__name__)

_CHECKPOINTS: Final = "checkpoints"
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,60}")
_PLAIN_PART: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class StoredFiles:
    """Files of the jobs of a deployment with a storage."""

    def __init__(self, storage: JobStorage, bundles: Bundles) -> None:
        self._storage = storage
        self._bundles = bundles
        self._kept: set[str] = set()
        self._under_way: set[str] = set()
        self._lock = threading.Lock()

    def grant(self, job: JobRecord) -> StorageGrant:
        """Return a grant for an instance to use the job's prefix.

        Raises:
            ProviderError: the cloud does not grant access now.
        """
        bundle = job.spec.bundle
        is_kept = bundle is not None and self._is_kept(bundle)
        return self._storage.grant(
            file_owner(job), _archive(bundle) if bundle and is_kept else None
        )

    def checkpoint_location(self, job: JobRecord) -> str | None:
        """Return the URL of the job's checkpoints; None if they are on a disk."""
        folder = checkpoint_folder(job.spec)
        return None if folder is None else f"{self._storage.place(file_owner(job))}/{folder}"

    def folder(self, job: JobRecord, name: str) -> tuple[Objects, str]:
        """Return the storage of all jobs, and the path of the job's folder `name` in it."""
        return self._storage.jobs, f"{file_owner(job)}/{name}"

    def checkpoints(self, job: JobRecord) -> tuple[Objects, str] | None:
        """Return the storage and the path of the job's checkpoints; None if they are on a disk."""
        folder = checkpoint_folder(job.spec)
        return None if folder is None else self.folder(job, folder)

    def remove_of(self, job: JobRecord, names: frozenset[str]) -> frozenset[str]:
        """Remove the objects of checkpoints; return the names that had objects.

        The name of a checkpoint ends at its first dot or slash.

        Raises:
            ProviderError: some objects may be left.
        """
        folder = checkpoint_folder(job.spec)
        if folder is None:
            return frozenset()
        prefix, objects = f"{file_owner(job)}/{folder}", self._storage.jobs
        removed = {
            entry.name: name
            for entry in objects.listed(prefix)
            if (name := re.split(r"[./]", entry.name.removeprefix(f"{prefix}/"))[0]) in names
        }
        objects.remove(removed)
        return frozenset(removed.values())

    def _is_kept(self, bundle: str) -> bool:
        """Upload the bundle to the storage if needed; return whether it is there.

        Without it, instances fetch the bundle from the controller.
        """
        with self._lock:
            if bundle in self._kept or bundle in self._under_way:
                return bundle in self._kept
            self._under_way.add(bundle)
        try:
            objects, name = self._storage.bundles, _archive(bundle)
            if not objects.exists(name):
                objects.put(name, self._bundles.path(bundle))
            with self._lock:
                self._kept.add(bundle)
            return True
        except (ProviderError, OSError) as error:
            _log.warning("bundle %s is not in storage: %s", bundle[:12], error)
            return False
        finally:
            with self._lock:
                self._under_way.discard(bundle)


def checkpoint_folder(spec: JobSpec) -> str | None:
    """Return the folder of the job's checkpoints in its prefix; None if they are on a disk.

    Raises:
        SpecError: the directory is no valid folder.
    """
    directory = PurePosixPath(spec.checkpoint.directory or _CHECKPOINTS)
    if directory.is_absolute():
        return None
    if not directory.parts or not all(_PLAIN_PART.fullmatch(part) for part in directory.parts):
        raise SpecError(
            f"{spec.checkpoint.directory!r} is no folder in a storage: use letters, digits, dots, "
            "hyphens and underscores, or the absolute path of a disk that all instances mount",
            "checkpoint.directory",
        )
    return str(directory)


def file_owner(job: JobRecord) -> str:
    """Return the prefix of a job's files: the first run of the job, or its study.

    A study's name with special characters is hashed, so that it is safe in URLs and policies.
    """
    study = job.spec.study
    if study is None:
        return job.files_of
    if _PLAIN.fullmatch(study):
        return f"study.{study}"
    return f"study.named.{sha256(study.encode()).hexdigest()[:32]}"


def has_checkpoint(job: JobRecord) -> bool:
    """Return whether the job has reported that it saved or read a checkpoint."""
    return job.report is not None and job.report.checkpoint.step is not None


def _archive(bundle: str) -> str:
    return f"{bundle}.tar.gz"
