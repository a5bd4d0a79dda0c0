"""Contract of the object storage that keeps jobs' files where instances share no disk.

Each job's files lie under its own prefix, and an instance gets credentials for that prefix alone.
Every method may block on the network and may be called from any thread. A refusal by the cloud is
raised as one of the `ProviderError`s of `autoscaler.domain.errors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from autoscaler.domain.storage import StorageGrant
from autoscaler.objects import Objects


class JobStorage(ABC):
    """Object storage for the files of all jobs of one deployment."""

    @property
    @abstractmethod
    def jobs(self) -> Objects:
        """Files of all owners, with the controller's access. Each owner's prefix is its name."""

    @property
    @abstractmethod
    def bundles(self) -> Objects:
        """Packed files of jobs, by SHA-256 of their contents, with the controller's access."""

    @property
    @abstractmethod
    def network(self) -> str:
        """Network that holds the storage, named as offers name their networks."""

    @abstractmethod
    def grant(self, owner: str, bundle: str | None = None) -> StorageGrant:
        """Return credentials to read and write the prefix of `owner`, and to read one bundle.

        `owner` is a job, or a group of jobs that share files. Its name has letters, digits, dots
        and hyphens. `bundle` is a name in `bundles`. A grant may be returned again while most of
        its time is left.

        Raises:
            PermissionDenied: the controller may not grant this access.
            Throttled, Unavailable: the cloud can't grant it now.
        """

    def place(self, owner: str) -> str:
        """Return the location of the files of `owner`."""
        return f"{self.jobs.place}/{owner}"
