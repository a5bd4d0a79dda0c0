"""Objects in a cloud's storage, under one place; the only obstore.

A place is a URL, such as ``s3://bucket/jobs/digits`` or ``gs://bucket/jobs/digits``, or
``file:///shared/jobs/digits`` for a directory that all see. An object is there as a whole or not
at all, and is seen as soon as it is.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any, Final, cast
from uuid import uuid4

from autoscaler.domain.errors import NotFound, PermissionDenied, Unavailable
from autoscaler.domain.storage import StorageGrant
from autoscaler.domain.transfer import MeterReading, Transfer

_PART_BYTES: Final = 16 << 20
_PARTS_AT_ONCE: Final = 4
_PATIENCE_SECONDS: Final = 60.0
_LONGEST_PAUSE_SECONDS: Final = 5.0
_LONGEST_REQUEST_SECONDS: Final = 30.0
_MOST_CHARACTERS: Final = 300
# The first words of a failure that say enough, in what obstore tells with all its causes.
_DENIED_WORDS: Final = (
    *("AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken"),
    *("SignatureDoesNotMatch", "403 Forbidden", "401 Unauthorized"),
)

_EXTRAS: Final = {"s3": "aws", "gs": "gcp"}
# What S3 and Cloud Storage call where they are reached, if not where they always are.
_ENDPOINTS: Final = ("endpoint", "base_url")

Access = Callable[[], StorageGrant]


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as a list has it. `name` is below the place; the time is that of its writing."""

    name: str
    bytes: int
    modified_seconds: float


class Meter:
    """Counts what some objects have sent and fetched. Safe to share between threads.

    What counts is the content of objects that were put, and of what came of those that were
    fetched: no requests, no lists, and no part that was sent again after it had failed, of which
    obstore does not tell. `on_news` is called after each, by whichever thread it was.
    """

    def __init__(self) -> None:
        self._name = uuid4().hex
        self._lock = Lock()
        self._transfer = Transfer()
        self.on_news: Callable[[], None] = lambda: None

    def read(self) -> MeterReading:
        """What it has counted up to now."""
        with self._lock:
            return MeterReading(self._name, self._transfer)

    def add(self, transfer: Transfer) -> None:
        """Count that, too."""
        with self._lock:
            self._transfer += transfer
        self.on_news()


class Objects:
    """What lies under one place. Safe to share between threads, not between forked processes.

    `access` is asked again and again for the credential: the one that it gives may be renewed. It
    also says, once, how the storage is reached. What fails for now is tried again, ever more
    slowly, for `patience_seconds`. Every method raises `PermissionDenied` where the credential
    does not do, and `Unavailable` where the storage does not answer, with one line that names the
    object. `meter` counts what is sent and fetched, here and below.

    Raises:
        NotFound: obstore is not installed.
        Unavailable: the place can't be one.
    """

    def __init__(
        self,
        place: str,
        access: Access,
        patience_seconds: float = _PATIENCE_SECONDS,
        meter: Meter | None = None,
    ) -> None:
        self.place = place.rstrip("/")
        self.meter = meter or Meter()
        self._access = access
        self._patience_seconds = patience_seconds
        self._store = self._open()

    def below(self, name: str) -> Objects:
        """What lies under `name` in here."""
        return Objects(f"{self.place}/{name}", self._access, self._patience_seconds, self.meter)

    def put(self, name: str, content: bytes | Path) -> None:
        """Let there be an object of this content, or of this file's.

        Raises:
            OSError: the file can't be read.
        """
        if isinstance(content, Path):
            with content.open("rb") as file:  # what is wrong with it is not the storage's trouble
                size = os.fstat(file.fileno()).st_size
        else:
            size = len(content)
        with self._named(name):
            self._store.put(name, content, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        self.meter.add(Transfer(sent_bytes=size))

    def get(self, name: str) -> bytes:
        """The content of an object.

        Raises:
            NotFound: there is none.
        """
        with self._told_missing(name), self._named(name):
            content = bytes(self._store.get(name).bytes())
        self.meter.add(Transfer(fetched_bytes=len(content)))
        return content

    def download(self, name: str, path: Path) -> None:
        """Let the file `path` have the content of an object.

        Raises:
            NotFound: there is none.
            OSError: the file can't be written.
        """
        size = self.size(name)
        starts = range(0, size, _PART_BYTES)
        with path.open("wb") as file, ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:

            def fetch(start: int) -> None:
                end = min(start + _PART_BYTES, size)
                with self._named(name):
                    part = self._store.get_range(name, start=start, end=end)
                self.meter.add(Transfer(fetched_bytes=len(part)))
                if os.pwrite(file.fileno(), part, start) != end - start:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

            for _ in pool.map(fetch, starts):
                pass  # a failure is raised here

    def size(self, name: str) -> int:
        """Return the size of an object, in bytes.

        Raises:
            NotFound: there is none.
        """
        with self._told_missing(name), self._named(name):
            return int(self._store.head(name)["size"])

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of an object, part by part.

        Raises:
            NotFound: there is none.
        """
        size = self.size(name)
        for start in range(0, size, _PART_BYTES):
            end = min(start + _PART_BYTES, size)
            with self._named(name):
                part = bytes(self._store.get_range(name, start=start, end=end))
            self.meter.add(Transfer(fetched_bytes=len(part)))
            yield part

    def listed(self, prefix: str = "", after: str | None = None) -> list[StoredObject]:
        """What lies under the folder `prefix`, in the order of its names, from `after` on."""
        with self._named(prefix):
            pages = self._store.list(prefix or None, offset=after)
            return sorted(
                (
                    StoredObject(each["path"], each["size"], each["last_modified"].timestamp())
                    for page in pages
                    for each in page
                ),
                key=lambda found: found.name,
            )

    def folders(self, prefix: str = "") -> list[str]:
        """The folders in the folder `prefix`, by their last names."""
        with self._named(prefix):
            found = self._store.list_with_delimiter(prefix or None)
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"])

    def exists(self, name: str) -> bool:
        """Whether there is such an object."""
        return self._is_listed(name)

    def remove(self, names: Iterable[str]) -> None:
        """Let there be no such objects. Those that are gone already count as done."""
        left = list(names)
        with suppress(NotFound), self._named(left[0] if left else ""):
            self._store.delete(left)
            return
        for name in left:
            with suppress(NotFound), self._named(name):
                self._store.delete(name)

    def _open(self) -> Any:
        try:
            from obstore.store import from_url
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get(self.place.partition(":")[0], "aws")
            raise NotFound(
                f"{self.place} can't be reached without {error.name}: install "
                f"castor-autoscaler[training] on instances and castor-autoscaler[{extra}] beside "
                "the controller"
            ) from error
        grant, build = self._access(), cast(Callable[..., Any], from_url)
        if self.place.startswith("file:"):
            return build(self.place, mkdir=True)
        patience = timedelta(seconds=self._patience_seconds)
        pause = timedelta(seconds=min(_LONGEST_PAUSE_SECONDS, self._patience_seconds))
        request = timedelta(seconds=min(_LONGEST_REQUEST_SECONDS, 5 * self._patience_seconds))
        options: dict[str, Any] = dict(grant.options)
        is_plain = any(options.get(each, "").startswith("http:") for each in _ENDPOINTS)
        with self._named(""):
            return build(
                self.place,
                config=options,
                client_options={"allow_http": is_plain, "timeout": request},
                retry_config={"retry_timeout": patience, "backoff": {"max_backoff": pause}},
                credential_provider=self._credential if grant.credential else None,
            )

    def _credential(self) -> Any:
        """The credential of now, as obstore takes it; asked for again before it has expired."""
        grant = self._access()
        expires = grant.expires_seconds
        until = None if expires is None else datetime.fromtimestamp(expires, UTC)
        return {**grant.credential, "expires_at": until}

    def _is_listed(self, name: str) -> bool:
        folder = name.rpartition("/")[0]
        with self._named(name):
            pages = self._store.list(folder or None, offset=name[:-1])
            return any(each["path"] == name for page in pages for each in page)

    @contextmanager
    def _told_missing(self, name: str) -> Iterator[None]:
        """Clouds refuse to say that an object is missing to who may list some prefixes only."""
        try:
            yield
        except PermissionDenied as error:
            try:
                is_missing = not self._is_listed(name)
            except (PermissionDenied, Unavailable):
                raise error from None
            if is_missing:
                raise NotFound(f"{self.place}/{name}: there is no such object") from error
            raise

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        from obstore.exceptions import (
            BaseError,
            PermissionDeniedError,
            UnauthenticatedError,
        )

        place = f"{self.place}/{name}".rstrip("/")
        try:
            yield
        except FileNotFoundError as error:
            raise NotFound(f"{place}: there is no such object") from error
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise PermissionDenied(
                f"{place}: the credential does not allow it, or has expired: {_line(error)}"
            ) from error
        except (BaseError, ValueError) as error:
            line = _line(error)
            if any(word in line for word in _DENIED_WORDS):
                raise PermissionDenied(
                    f"{place}: the credential does not allow it, or has expired: {line}"
                ) from error
            raise Unavailable(f"{place}: {line}") from error


def always(grant: StorageGrant) -> Access:
    """The access that a grant gives which is never renewed."""
    return lambda: grant


def granted(file: Path) -> Access:
    """The access that the grant in this file gives, as it is renewed.

    It raises `Unavailable` where the file can't be read.
    """

    def read() -> StorageGrant:
        try:
            return StorageGrant(**json.loads(file.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            reason = getattr(error, "strerror", None) or "it is no grant"
            raise Unavailable(f"{file}: {reason}: the agent writes it anew") from error

    return read


def open_grant(
    file: Path,
    place: str | None = None,
    patience_seconds: float = _PATIENCE_SECONDS,
    meter: Meter | None = None,
) -> Objects:
    """What the grant in this file gives access to; all of it, or what lies at `place` in it.

    Raises:
        NotFound: obstore is not installed.
        Unavailable: the file can't be read.
    """
    access = granted(file)
    return Objects(place or access().place, access, patience_seconds, meter)


def _line(error: BaseException) -> str:
    """What obstore tells, without what it adds for its developers."""
    words = " ".join(str(error).split("Debug source")[0].split())
    return words[:_MOST_CHARACTERS].rstrip(" :.") or type(error).__name__
