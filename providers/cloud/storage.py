"""What storages of clouds have in common: where files lie, and grants that are given again."""

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
"""For so long the controller's own access is not asked for again."""
# A grant is given again, to the next instance of its job, while so much of its time is left.
_LEAST_LEFT: Final = 0.75
_PATIENCE_SECONDS: Final = 10.0
# The names of a place that policies are made from; ".." would lead elsewhere.
_PLAIN: Final = re.compile(r"(?!\.+$)[A-Za-z0-9._=-]+")
_OWNER: Final = re.compile(r"(?!\.+$)[A-Za-z0-9.-]+")


class CloudJobStorage(JobStorage):
    """Jobs' files under `place`, and bundles beside it. Safe to share between threads.

    What a cloud does its own way are `_own` and `_made`; `_own` must be ready before this
    constructor is called.

    Raises:
        ProviderError: `_own` did.
        NotFound: obstore is not installed.
    """

    def __init__(self, place: str, network: str, clock: Clock) -> None:
        self._clock = clock
        self._network = network
        self._grants: dict[tuple[str, str | None], StorageGrant] = {}
        self._lock = threading.Lock()
        self._jobs = Objects(place, self._own, _PATIENCE_SECONDS)
        bundles = f"{place.rpartition('/')[0]}/bundles"
        self._bundles = Objects(bundles, self._own, _PATIENCE_SECONDS)

    @abstractmethod
    def _own(self) -> StorageGrant:
        """The controller's own access to all of it.

        Raises:
            ProviderError: it has none, or not now.
        """

    @abstractmethod
    def _made(self, place: str, bundle: str | None) -> StorageGrant:
        """A new grant for `place`, and to read `bundle`, for `GRANT_SECONDS`.

        Raises:
            PermissionDenied: the controller may not give it.
            Throttled, Unavailable: not now.
        """

    @property
    def jobs(self) -> Objects:
        """What lies under `regions.R.jobs`, with the controller's own credentials."""
        return self._jobs

    @property
    def bundles(self) -> Objects:
        """What lies beside it, under `bundles`."""
        return self._bundles

    @property
    def network(self) -> str:
        """That of the region that it is in."""
        return self._network

    def grant(self, owner: str, bundle: str | None = None) -> StorageGrant:
        """Return a grant for one owner's prefix and one bundle; see `JobStorage`."""
        if not _OWNER.fullmatch(owner):
            raise PermissionDenied(
                f"{quoted(owner)} gets no credential: an owner is letters, digits, "
                "dots and hyphens"
            )
        known = self._known(owner, bundle)
        if known is not None:
            return known
        archive = None if bundle is None else f"{self._bundles.place}/{bundle}"
        made = self._made(self.place(owner), archive)
        with self._lock:
            now_seconds = self._clock.now()
            alive = {key: each for key, each in self._grants.items() if _left(each, now_seconds)}
            self._grants = {**alive, (owner, bundle): made}
        return made

    def _known(self, owner: str, bundle: str | None) -> StorageGrant | None:
        with self._lock:
            known = self._grants.get((owner, bundle))
        return known if known is not None and _left(known, self._clock.now()) else None


class _Region(Protocol):
    @property
    def jobs(self) -> str | None: ...


Region = TypeVar("Region", bound=_Region)


def place_of_jobs(
    regions: Mapping[str, Region], account_of: Callable[[Region], str | None], key: str
) -> tuple[str, str, str]:
    """In which region jobs keep their files, where, and as whom instances get leave for them.

    A job's files lie in one place, wherever its instances are: the first that a region has.

    Args:
        regions: the settings' own.
        account_of: as whom leave is given in one of them.
        key: what that is called in the settings.

    Raises:
        SpecError: no region has one.
    """
    for name, region in regions.items():
        account = account_of(region)
        if region.jobs is not None and account is not None:
            return name, region.jobs, account
    raise SpecError(
        "no region says where jobs keep their files, and an instance's disk goes with it: apply "
        f"this release's Terraform module, or add jobs and {key}",
        f"regions.{next(iter(regions))}.jobs",
    )


def bucket_and_name(place: str) -> tuple[str, str]:
    """Return ``castor`` and ``jobs/digits`` of ``s3://castor/jobs/digits``.

    Both stand in policies, in which wildcards and quotation marks mean something.

    Raises:
        PermissionDenied: the place holds such a character, or an empty or relative part.
    """
    parts = urlsplit(place)
    bucket, name = parts.netloc, parts.path.strip("/")
    plain = all(_PLAIN.fullmatch(part) for part in (bucket, *name.split("/")))
    if not plain or "?" in place or "#" in place:
        raise PermissionDenied(
            f"{quoted(place)} gets no credential: use letters, digits, dots, hyphens, "
            "underscores and = in the names of a place"
        )
    return bucket, name


def _left(grant: StorageGrant, now_seconds: float) -> bool:
    """Most of its time is left."""
    until_seconds = grant.expires_seconds or 0.0
    return until_seconds - now_seconds > _LEAST_LEFT * GRANT_SECONDS
