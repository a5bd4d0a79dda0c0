"""What jobs keep in a cloud's storage, where their instances share no disk.

Under a job's place are its checkpoints, in a folder that its file may name, and its logs. Trials
of a study have one place together.
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
    """The files of all jobs of a deployment that has a storage for them."""

    def __init__(self, storage: JobStorage, bundles: Bundles) -> None:
        self._storage = storage
        self._bundles = bundles
        self._kept: set[str] = set()
        self._under_way: set[str] = set()
        self._lock = threading.Lock()

    def grant(self, job: JobRecord) -> StorageGrant:
        """Leave for an instance to use the job's place.

        Raises:
            ProviderError: the cloud does not give it, or not now.
        """
        bundle = job.spec.bundle
        is_kept = bundle is not None and self._is_kept(bundle)
        return self._storage.grant(owner(job), _archive(bundle) if bundle and is_kept else None)

    def depot(self, job: JobRecord) -> str | None:
        """Where the job's checkpoints are; None where they are on a disk that its file names."""
        folder = checkpoint_folder(job.spec)
        return None if folder is None else f"{self._storage.place(owner(job))}/{folder}"

    def folder(self, job: JobRecord, name: str) -> tuple[Objects, str]:
        """Return the storage of all jobs, and the folder `name` of the job's place in it."""
        return self._storage.jobs, f"{owner(job)}/{name}"

    def checkpoints(self, job: JobRecord) -> tuple[Objects, str] | None:
        """Return the storage of all jobs and the job's checkpoints in it; None as for `depot`."""
        folder = checkpoint_folder(job.spec)
        return None if folder is None else self.folder(job, folder)

    def remove_of(self, job: JobRecord, names: frozenset[str]) -> frozenset[str]:
        """Remove what the checkpoints called so have left; returns of which there was something.

        A name ends at its first dot, or where its folder does.

        Raises:
            ProviderError: some may be left.
        """
        folder = checkpoint_folder(job.spec)
        if folder is None:
            return frozenset()
        prefix, objects = f"{owner(job)}/{folder}", self._storage.jobs
        found = {
            each.name: name
            for each in objects.listed(prefix)
            if (name := re.split(r"[./]", each.name.removeprefix(f"{prefix}/"))[0]) in names
        }
        objects.remove(found)
        return frozenset(found.values())

    def _is_kept(self, bundle: str) -> bool:
        """Have the bundle in storage. Where it is not, instances fetch it from the controller."""
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
    """The folder of the job's place that has its checkpoints; None where they are on a disk.

    Raises:
        SpecError: it can't be one.
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


def owner(job: JobRecord) -> str:
    """Return whose place a job's files are in: the first of its runs', or its study's.

    What is not plain in a study's name must not mean something in a URL or in a policy, and
    studies whose names differ must not meet.
    """
    study = job.spec.study
    if study is None:
        return job.files_of
    if _PLAIN.fullmatch(study):
        return f"study.{study}"
    return f"study.named.{sha256(study.encode()).hexdigest()[:32]}"


def has_saved(job: JobRecord) -> bool:
    """Whether the job has reported that it saved or read a checkpoint."""
    return job.report is not None and job.report.checkpoint.step is not None


def _archive(bundle: str) -> str:
    return f"{bundle}.tar.gz"
