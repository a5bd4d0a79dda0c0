"""Assignments of instances: job, secrets and locations of files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final

from autoscaler.domain.errors import NotFound, SpecError
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord, JobSpec
from autoscaler.domain.offer import Offer
from autoscaler.domain.paths import inside, relative_names
from autoscaler.domain.storage import StorageGrant
from autoscaler.service.access.authentication import Authentication
from autoscaler.service.access.job_secrets import AllowedSecrets
from autoscaler.service.files.stored import StoredFiles, checkpoint_folder, has_checkpoint
from autoscaler.wire.messages import Assignment

_CHECKPOINTS: Final = "checkpoints"


@dataclass(frozen=True, slots=True)
class TrainingTimes:
    """Time limits of the replicas of all jobs."""

    checkpoint_interval_seconds: float = 300.0
    heartbeat_timeout_seconds: float = 1.5
    collective_timeout_seconds: float = 30.0


class Assignments:
    """Factory for the assignments of one deployment; jobs' files are below `directory`.

    With `stored`, they are in a cloud's storage instead.
    """

    def __init__(
        self,
        directory: Path,
        authentication: Authentication,
        times: TrainingTimes,
        secrets: AllowedSecrets,
        stored: StoredFiles | None = None,
    ) -> None:
        self._directory = directory
        self._authentication = authentication
        self._times = times
        self._secrets = secrets
        self._stored = stored

    def assignment(
        self, job: JobRecord, held: HeldInstance, offer: Offer, user_number: int
    ) -> Assignment:
        """Return the assignment of `held`, an instance of `offer`.

        Raises:
            SpecError: a secret can't be found.
            ProviderError: the cloud does not grant access to the job's storage.
        """
        interval_seconds = job.spec.checkpoint.interval_seconds
        return Assignment(
            job=job.id,
            job_number=job.number,
            spec=replace(job.spec, batch=job.known_batch),
            secrets=self._secrets.values(job.spec.secrets),
            offer=offer,
            devices_used=held.devices_used,
            attempt=job.attempt,
            lighthouse=job.lighthouse or None,
            peer_token=self._authentication.peer_token(job.id),
            checkpoint_directory=self._checkpoint_directory_of_instance(job),
            checkpoint_interval_seconds=(
                self._times.checkpoint_interval_seconds
                if interval_seconds is None
                else interval_seconds
            ),
            heartbeat_timeout_seconds=self._times.heartbeat_timeout_seconds,
            collective_timeout_seconds=self._times.collective_timeout_seconds,
            depot=None if self._stored is None else self._stored.checkpoint_location(job),
            grant=None if self._stored is None else self._stored.grant(job),
            outputs_directory=None if self._stored else str(self.outputs_directory(job)),
            checkpoint_owner=self._checkpoint_owner(job),
            adopts=self._adopts(job),
            user_number=user_number,
        )

    def _checkpoint_owner(self, job: JobRecord) -> str | None:
        """Return the owner of the job's checkpoints.

        The result is None in directories that only this job uses.
        """
        if job.spec.study is not None:
            return None
        directory = PurePosixPath(job.spec.checkpoint.directory or "")
        if self._stored is None and not directory.is_absolute():
            return None
        # Two deployments may share a location and job names; their keys differ.
        mark = sha256(self._authentication.peer_token(job.files_of).encode()).hexdigest()[:16]
        return f"{job.files_of}#{mark}"

    @staticmethod
    def _adopts(job: JobRecord) -> str | None:
        """Return the job whose checkpoints may be taken over.

        A job that has saved a checkpoint may take over its own: earlier releases recorded no
        owner, and the key may be lost.
        """
        if has_checkpoint(job) or job.spec.resumes is not None:
            return job.files_of
        return job.spec.checkpoint.adopt

    def grant(self, job: JobRecord) -> StorageGrant:
        """Return a renewed grant for the job's storage.

        Raises:
            NotFound: the job's files are not in storage.
            ProviderError: the cloud does not grant access now.
        """
        if self._stored is None:
            raise NotFound(f"the files of {job.id} are not in storage")
        return self._stored.grant(job)

    def check(self, spec: JobSpec) -> None:
        """Check that a job's secrets and the locations of its files are valid.

        Raises:
            SpecError: a location is invalid, or a secret can't be found.
        """
        self._secrets.values(spec.secrets)
        self._require_foreign_directory(spec.checkpoint.directory)
        if self._stored is not None:
            checkpoint_folder(spec)

    def _require_foreign_directory(self, directory: str | None) -> None:
        """Check that an absolute checkpoint directory is outside the deployment's directory."""
        if directory is None or not PurePosixPath(directory).is_absolute():
            return
        if Path(directory).resolve().is_relative_to(self._directory.resolve()):
            raise SpecError(
                f"{directory} is kept for another job: `castor resume JOB` goes on from the "
                "checkpoints there; name a directory elsewhere, or leave the key out",
                "checkpoint.directory",
            )

    def checkpoint_place(self, job: JobRecord) -> str:
        """Return the location of the job's checkpoints: a directory, or a URL of a storage."""
        location = None if self._stored is None else self._stored.checkpoint_location(job)
        return location or str(self.checkpoint_directory(job))

    def _checkpoint_directory_of_instance(self, job: JobRecord) -> str:
        """Return the checkpoint directory on an instance.

        The path is relative if the checkpoints are in storage.
        """
        if self._stored is None or self._stored.checkpoint_location(job) is None:
            return str(self.checkpoint_directory(job))
        return str(checkpoint_folder(job.spec))

    @property
    def root(self) -> Path:
        """Directory of the files of all jobs."""
        return self._directory

    def checkpoint_directory(self, job: JobRecord) -> Path:
        """Return the directory of the job's checkpoints.

        A relative path is inside the job's own directory.

        Trials of a study share a directory, so that a retry finds the checkpoint of the earlier
        job.

        Raises:
            SpecError: the path would leave that directory.
        """
        study = job.spec.study
        directory = PurePosixPath(job.spec.checkpoint.directory or _CHECKPOINTS)
        if directory.is_absolute():
            return Path(directory)
        owner = job.files_of if study is None else f"study.{study}"
        names = relative_names(str(directory), "checkpoint.directory")
        return inside(self._directory, owner, *names)

    def outputs_directory(self, job: JobRecord) -> Path:
        """Return the directory of the job's outputs, with a subdirectory for each instance."""
        return inside(self._directory.with_name("outputs"), job.files_of)
