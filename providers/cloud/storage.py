"""Shared base of clouds' job storages: locations of files, and cached grants."""

from __future__ import annotations

import re
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar
from urllib.parse import urlsplit

from autoscaler.clock import Clock
from autoscaler.domain.errors import PermissionDenied, SpecError
from autoscaler.domain.storage import StorageGrant
from autoscaler.domain.text import quoted
from autoscaler.objects import Objects
from providers.storage import JobStorage

GRANT_SECONDS: Final = 3600
OWN_SECONDS: Final = 60.0
"""Seconds for which the controller's own access is cached."""
# A grant is reused for the job's next instance while this fraction of its time is left.
_MIN_FRACTION_LEFT: Final = 0.75
_TIMEOUT_SECONDS: Final = 10.0
# Parts of a location that policies contain; ".." would leave the location.
_PLAIN_NAME: Final = re.compile(r"(?!\.+$)[A-Za-z0-9._=-]+")
_OWNER: Final = re.compile(r"(?!\.+$)[A-Za-z0-9.-]+")


class CloudJobStorage(JobStorage):
    """Storage of jobs' files under `place`, and of bundles beside it. Thread-safe.

    Each cloud implements `_own` and `_made`. `_own` must work before this constructor is called.

    Raises:
        ProviderError: raised by `_own`.
        NotFound: obstore is not installed.
    """

    def __init__(self, place: str, network: str, clock: Clock) -> None:
        self._clock = clock
        self._network = network
        self._grants: dict[tuple[str, str | None], StorageGrant] = {}
        self._lock = threading.Lock()
        self._jobs = Objects(place, self._own, _TIMEOUT_SECONDS)
        bundles = f"{place.rpartition('/')[0]}/bundles"
        self._bundles = Objects(bundles, self._own, _TIMEOUT_SECONDS)

    @abstractmethod
    def _own(self) -> StorageGrant:
        """Return the controller's own access to the whole storage.

        Raises:
            ProviderError: the controller has no access, or the cloud does not answer.
        """

    @abstractmethod
    def _made(self, place: str, bundle: str | None) -> StorageGrant:
        """Return a new grant for `place` and to read `bundle`, valid for `GRANT_SECONDS`.

        Raises:
            PermissionDenied: the controller may not grant this access.
            Throttled, Unavailable: the cloud can't grant it now.
        """

    @property
    def jobs(self) -> Objects:
        """Files under the location in `regions.R.jobs`, with the controller's credentials."""
        return self._jobs

    @property
    def bundles(self) -> Objects:
        """Files under `bundles`, beside `jobs`."""
        return self._bundles

    @property
    def network(self) -> str:
        """Network of the storage's region."""
        return self._network

    def grant(self, owner: str, bundle: str | None = None) -> StorageGrant:
        """Return a grant for one owner's prefix and one bundle; see `JobStorage`."""
        if not _OWNER.fullmatch(owner):
            raise PermissionDenied(
                f"{quoted(owner)} gets no credential: an owner's name may have letters, digits, "
                "dots and hyphens"
            )
        usable = self._cached_grant(owner, bundle)
        if usable is not None:
            return usable
        archive = None if bundle is None else f"{self._bundles.place}/{bundle}"
        new_grant = self._made(self.place(owner), archive)
        with self._lock:
            now_seconds = self._clock.now()
            fresh = {
                key: cached
                for key, cached in self._grants.items()
                if _has_time_left(cached, now_seconds)
            }
            self._grants = {**fresh, (owner, bundle): new_grant}
        return new_grant

    def _cached_grant(self, owner: str, bundle: str | None) -> StorageGrant | None:
        with self._lock:
            cached = self._grants.get((owner, bundle))
        return cached if cached is not None and _has_time_left(cached, self._clock.now()) else None


class _Region(Protocol):
    @property
    def jobs(self) -> str | None: ...


Region = TypeVar("Region", bound=_Region)


def place_of_jobs(
    regions: Mapping[str, Region], account_of: Callable[[Region], str | None], key: str
) -> tuple[str, str, str]:
    """Return the region, location and account of jobs' files: the first that the settings name.

    All of a job's files lie in one location, wherever its instances run.

    Args:
        regions: the regions of the settings.
        account_of: returns the account or role that grants a region's storage access.
        key: the name of that account in the settings.

    Raises:
        SpecError: no region has a location and an account.
    """
    for name, region in regions.items():
        account = account_of(region)
        if region.jobs is not None and account is not None:
            return name, region.jobs, account
    raise SpecError(
        "no region names a location for jobs' files, and an instance's disk is deleted with it: "
        f"apply this release's Terraform module, or add jobs and {key}",
        f"regions.{next(iter(regions))}.jobs",
    )


def bucket_and_name(place: str) -> tuple[str, str]:
    """Return ``castor`` and ``jobs/digits`` of ``s3://castor/jobs/digits``.

    Both become part of access policies, in which wildcards and quotation marks have a meaning.

    Raises:
        PermissionDenied: the location has such a character, or an empty or relative part.
    """
    parts = urlsplit(place)
    bucket, name = parts.netloc, parts.path.strip("/")
    plain = all(_PLAIN_NAME.fullmatch(part) for part in (bucket, *name.split("/")))
    if not plain or "?" in place or "#" in place:
        raise PermissionDenied(
            f"{quoted(place)} gets no credential: use letters, digits, dots, hyphens, "
            "underscores and = in the names of a place"
        )
    return bucket, name


def _has_time_left(grant: StorageGrant, now_seconds: float) -> bool:
    """Return whether most of a grant's time is left."""
    until_seconds = grant.expires_seconds or 0.0
    return until_seconds - now_seconds > _MIN_FRACTION_LEFT * GRANT_SECONDS
