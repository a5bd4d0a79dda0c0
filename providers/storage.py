"""The contract of a storage in which jobs keep their files, where their instances share no disk.

What a job keeps lies under a place of its own, and an instance gets leave for that place alone.
Every method may block on the network and may be called from any thread; what the cloud refuses
is raised as one of the `ProviderError`s of `autoscaler.domain.errors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from autoscaler.domain.storage import StorageGrant
from autoscaler.objects import Objects


class JobStorage(ABC):
    """Keeps the files of all jobs of one deployment."""

    @property
    @abstractmethod
    def jobs(self) -> Objects:
        """All places, for the controller itself: an owner's lies under its name."""

    @property
    @abstractmethod
    def bundles(self) -> Objects:
        """The packed files of jobs, by the SHA-256 of what is in them, for the controller."""

    @property
    @abstractmethod
    def network(self) -> str:
        """Where it is, as offers name their networks."""

    @abstractmethod
    def grant(self, owner: str, bundle: str | None = None) -> StorageGrant:
        """Leave to read and write the place of `owner`, and to read a bundle, and nothing else.

        `owner` is a job, or what several jobs share: letters, digits, dots and hyphens. The bundle
        is named as in `bundles`. The same grant may be given again while most of its time is left.

        Raises:
            PermissionDenied: the controller may not give it.
            Throttled, Unavailable: not now.
        """

    def place(self, owner: str) -> str:
        """Where the files of `owner` lie."""
        return f"{self.jobs.place}/{owner}"
