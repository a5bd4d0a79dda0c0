"""Objects in a cloud's storage, all under one place; the only module that uses obstore.

A place is a URL, such as ``s3://bucket/jobs/digits`` or ``gs://bucket/jobs/digits``, or
``file:///shared/jobs/digits`` for a shared directory. Writing an object is atomic: readers
see the whole object as soon as it is written, and never a part.
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
_REQUEST_PATIENCES: Final = 5.0  # longest request, in units of the time for retries
_LONGEST_ERROR_CHARACTERS: Final = 300
# Words in obstore's errors that mean the credential is not sufficient.
_DENIED_WORDS: Final = (
    *("AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken"),
    *("SignatureDoesNotMatch", "403 Forbidden", "401 Unauthorized"),
)

_EXTRAS: Final = {"s3": "aws", "gs": "gcp"}
# Options of S3 and Cloud Storage that replace the default endpoint.
_ENDPOINTS: Final = ("endpoint", "base_url")

Access = Callable[[], StorageGrant]


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in a listing: its name below the place, and its size."""

    name: str
    bytes: int


class Meter:
    """Count of the bytes that objects sent and fetched. Safe to share between threads.

    Only the content of objects counts: no requests, no listings and no parts that obstore sent
    again after a failure. `on_news` is called after each transfer, in the thread of the transfer.
    """

    def __init__(self) -> None:
        self._name = uuid4().hex
        self._lock = Lock()
        self._transfer = Transfer()
        self.on_news: Callable[[], None] = lambda: None

    def read(self) -> MeterReading:
        """Return the bytes counted so far."""
        with self._lock:
            return MeterReading(self._name, self._transfer)

    def add(self, transfer: Transfer) -> None:
        """Add a transfer to the count."""
        with self._lock:
            self._transfer += transfer
        self.on_news()


class Objects:
    """Objects under one place. Safe to share between threads, not between forked processes.

    `access` returns the credential. It is called again for every renewal, and at the start for
    the options that say how to reach the storage. Temporary failures are retried with increasing
    delays for `patience_seconds`. Every method raises `PermissionDenied` where the credential is
    not sufficient, and `Unavailable` where the storage does not answer; the message is one line
    that names the object. `meter` counts the bytes of these objects and of those from `below`.

    Raises:
        NotFound: obstore is not installed.
        Unavailable: the place is not valid.
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

    def put(self, name: str, content: bytes | Path) -> None:
        """Write an object with this content, or with this file's content.

        Raises:
            OSError: the file can't be read.
        """
        if isinstance(content, Path):
            with content.open("rb") as file:  # raises errors of the file apart from the storage's
                size = os.fstat(file.fileno()).st_size
        else:
            size = len(content)
        with self._translated_errors(name):
            self._store.put(name, content, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        self.meter.add(Transfer(sent_bytes=size))

    def get(self, name: str) -> bytes:
        """Return the content of an object.

        Raises:
            NotFound: the object does not exist.
        """
        with self._missing_as_not_found(name), self._translated_errors(name):
            content = bytes(self._store.get(name).bytes())
        self.meter.add(Transfer(fetched_bytes=len(content)))
        return content

    def download(self, name: str, path: Path) -> None:
        """Write the content of an object to the file `path`, fetching up to 4 parts at once.

        Raises:
            NotFound: the object does not exist.
            OSError: the file can't be written.
        """
        size = self.size(name)
        starts = range(0, size, _PART_BYTES)
        with path.open("wb") as file, ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:

            def fetch(start: int) -> None:
                end = min(start + _PART_BYTES, size)
                with self._translated_errors(name):
                    part = self._store.get_range(name, start=start, end=end)
                self.meter.add(Transfer(fetched_bytes=len(part)))
                if os.pwrite(file.fileno(), part, start) != end - start:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

            for _ in pool.map(fetch, starts):
                pass  # raises the failure of a part

    def size(self, name: str) -> int:
        """Return the size of an object, in bytes.

        Raises:
            NotFound: the object does not exist.
        """
        with self._missing_as_not_found(name), self._translated_errors(name):
            return int(self._store.head(name)["size"])

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of an object in parts of at most 16 MiB.

        Raises:
            NotFound: the object does not exist.
        """
        size = self.size(name)
        for start in range(0, size, _PART_BYTES):
            end = min(start + _PART_BYTES, size)
            with self._translated_errors(name):
                part = bytes(self._store.get_range(name, start=start, end=end))
            self.meter.add(Transfer(fetched_bytes=len(part)))
            yield part

    def listed(self, prefix: str = "", after: str | None = None) -> list[StoredObject]:
        """Return the objects under the folder `prefix`, sorted by name.

        With `after`, only objects whose full name sorts after it.
        """
        with self._translated_errors(prefix):
            pages = self._store.list(prefix or None, offset=after)
            return sorted(
                (StoredObject(entry["path"], entry["size"]) for page in pages for entry in page),
                key=lambda stored: stored.name,
            )

    def folders(self, prefix: str = "") -> list[str]:
        """Return the names of the folders directly in the folder `prefix`, sorted."""
        with self._translated_errors(prefix):
            listing = self._store.list_with_delimiter(prefix or None)
        return sorted(path.rstrip("/").rpartition("/")[2] for path in listing["common_prefixes"])

    def exists(self, name: str) -> bool:
        """Return whether the object exists."""
        return self._is_listed(name)

    def remove(self, names: Iterable[str]) -> None:
        """Delete objects. Objects that do not exist are skipped."""
        remaining = list(names)
        with suppress(NotFound), self._translated_errors(remaining[0] if remaining else ""):
            self._store.delete(remaining)
            return
        for name in remaining:
            with suppress(NotFound), self._translated_errors(name):
                self._store.delete(name)

    def _open(self) -> Any:
        try:
            from obstore.store import from_url
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get(self.place.partition(":")[0], "aws")
            raise NotFound(
                f"{self.place} can't be reached, {error.name} is not installed: install "
                f"castor-autoscaler[training] on instances and castor-autoscaler[{extra}] beside "
                "the controller"
            ) from error
        grant, build = self._access(), cast(Callable[..., Any], from_url)
        if self.place.startswith("file:"):
            return build(self.place, mkdir=True)
        retry_limit = timedelta(seconds=self._patience_seconds)
        longest_pause = timedelta(seconds=min(_LONGEST_PAUSE_SECONDS, self._patience_seconds))
        request_limit = timedelta(
            seconds=min(_LONGEST_REQUEST_SECONDS, _REQUEST_PATIENCES * self._patience_seconds)
        )
        options: dict[str, Any] = dict(grant.options)
        is_plain = any(options.get(endpoint, "").startswith("http:") for endpoint in _ENDPOINTS)
        with self._translated_errors(""):
            return build(
                self.place,
                config=options,
                client_options={"allow_http": is_plain, "timeout": request_limit},
                retry_config={
                    "retry_timeout": retry_limit,
                    "backoff": {"max_backoff": longest_pause},
                },
                credential_provider=self._credential if grant.credential else None,
            )

    def _credential(self) -> Any:
        """Return the current credential in obstore's format.

        obstore calls this again before the credential expires.
        """
        grant = self._access()
        expires = grant.expires_seconds
        until = None if expires is None else datetime.fromtimestamp(expires, UTC)
        return {**grant.credential, "expires_at": until}

    def _is_listed(self, name: str) -> bool:
        folder = name.rpartition("/")[0]
        with self._translated_errors(name):
            pages = self._store.list(folder or None, offset=name[:-1])
            return any(entry["path"] == name for page in pages for entry in page)

    @contextmanager
    def _missing_as_not_found(self, name: str) -> Iterator[None]:
        """Turn `PermissionDenied` for a missing object into `NotFound`.

        Clouds answer "denied" instead of "missing" if the credential may list some prefixes only.
        """
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
    def _translated_errors(self, name: str) -> Iterator[None]:
        """Translate obstore's errors into Castor's, each with one line that names the object."""
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
    """Return access by a grant that is never renewed."""
    return lambda: grant


def granted(file: Path) -> Access:
    """Return access by the grant in a file; the file is read again at each renewal.

    The access raises `Unavailable` where the file can't be read.
    """

    def read() -> StorageGrant:
        try:
            return StorageGrant(**json.loads(file.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            reason = getattr(error, "strerror", None) or "it is not a grant"
            raise Unavailable(f"{file}: {reason}: the agent writes it again") from error

    return read


def open_grant(
    file: Path,
    place: str | None = None,
    patience_seconds: float = _PATIENCE_SECONDS,
    meter: Meter | None = None,
) -> Objects:
    """Return the objects that the grant in a file gives access to, or those at `place` within it.

    Raises:
        NotFound: obstore is not installed.
        Unavailable: the file can't be read.
    """
    access = granted(file)
    return Objects(place or access().place, access, patience_seconds, meter)


def _line(error: BaseException) -> str:
    """Return obstore's message on one line, without its debug output."""
    message = " ".join(str(error).split("Debug source")[0].split())
    return message[:_LONGEST_ERROR_CHARACTERS].rstrip(" :.") or type(error).__name__
