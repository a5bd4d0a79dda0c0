"""Bounds on the bytes of files that one account may store, such as a person or a study."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

from autoscaler.domain.errors import OverQuota
from autoscaler.store.repositories.owners import OwnedKind, Owners

ARCHIVE_SUFFIX: Final = ".tar.gz"
_PARTIAL: Final = "."


@dataclass(frozen=True, slots=True)
class StoredFile:
    """File that counts for an account. `name` is unique among all files of a quota."""

    account: str
    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class QuotaTerms:
    """Bound of each account in bytes, and the words for an upload beyond it."""

    most_bytes: float
    field: str
    files: str
    way_out: str


class ByteQuota:
    """Bytes of each account, counted as files come and go.

    `list_stored` returns the files that are there at the first use. Several threads may use a
    quota.
    """

    def __init__(
        self, terms: QuotaTerms, list_stored: Callable[[], Iterable[StoredFile]] = tuple
    ) -> None:
        self._terms = terms
        self._list_stored = list_stored
        self._lock = Lock()
        self._is_loaded = False
        self._files: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._used: Counter[str] = Counter()
        self._arriving: Counter[str] = Counter()

    def load(self) -> None:
        """Read which files are there, unless that has been done. This reads the disk once."""
        with self._lock:
            if not self._is_loaded:
                for file in self._list_stored():
                    self._add(file)
                self._is_loaded = True

    def used_bytes(self, account: str) -> int:
        """Return the bytes of the files of an account."""
        self.load()
        return self._used[account]

    @contextmanager
    def arriving(self, account: str, name: str) -> Iterator[Callable[[int], None]]:
        """Yield a function that counts the bytes of an upload as they arrive.

        The function raises `OverQuota` beyond the bound; `name` is what people call the account.
        After the context only files count that were added by `keep`.
        """
        total_bytes = 0

        def count(received_bytes: int) -> None:
            nonlocal total_bytes
            with self._lock:
                arriving_bytes = self._arriving[account]
                self._require_room(account, name, arriving_bytes + received_bytes)
                self._arriving[account] += received_bytes
            total_bytes += received_bytes

        try:
            yield count
        finally:
            with self._lock:
                self._arriving[account] -= total_bytes
                self._arriving += Counter()  # without the accounts that have none

    def keep(self, file: StoredFile, name: str) -> None:
        """Count a file for its account from now on; `name` is what people call the account.

        Raises:
            OverQuota: the account would have more than its bound.
        """
        self.load()
        with self._lock:
            if file.account not in self._files[file.name]:
                self._require_room(file.account, name, file.bytes)
                self._add(file)

    def forget(self, file_name: str) -> None:
        """Stop counting a file that was deleted, for all its accounts."""
        with self._lock:
            for account, size_bytes in self._files.pop(file_name, {}).items():
                self._used[account] -= size_bytes

    def forget_all(self, account: str) -> None:
        """Stop counting all files of an account."""
        with self._lock:
            for accounts in self._files.values():
                accounts.pop(account, None)
            self._used.pop(account, None)

    def _add(self, file: StoredFile) -> None:
        self._files[file.name][file.account] = file.bytes
        self._used[file.account] += file.bytes

    def _require_room(self, account: str, name: str, more_bytes: int) -> None:
        terms, used_bytes = self._terms, self._used[account]
        if used_bytes + more_bytes > terms.most_bytes:
            raise OverQuota(
                f"{name} may store {terms.most_bytes:,} bytes of {terms.files}, and has "
                f"{used_bytes:,}: {terms.way_out}",
                terms.field,
            )


def bundle_quota(directory: Path, owners: Owners, most_bytes: float) -> ByteQuota:
    """Return the quota of each person for bundles in a directory."""

    def list_stored() -> Iterator[StoredFile]:
        owners_of = owners.all(OwnedKind.BUNDLE)
        for path, size_bytes in _sizes(directory):
            for owner in owners_of.get(path.name.removesuffix(ARCHIVE_SUFFIX), ()):
                yield StoredFile(owner.person, path.name, size_bytes)

    terms = QuotaTerms(
        most_bytes,
        "bundle",
        "bundles",
        "leave files out with .castorignore, wait until bundles that no job uses are deleted "
        "(castor serve --keep), or ask for a larger castor serve --owner-bundles",
    )
    return ByteQuota(terms, list_stored)


def study_quota(directory: Path, most_bytes: float) -> ByteQuota:
    """Return the quota of each study for files that its driver has not fetched."""

    def list_stored() -> Iterator[StoredFile]:
        for folder in directory.iterdir() if directory.is_dir() else ():
            for path, size_bytes in _sizes(folder):
                yield StoredFile(folder.name, f"{folder.name}/{path.name}", size_bytes)

    terms = QuotaTerms(
        most_bytes,
        "file",
        "files that its driver has not fetched",
        "start its driver, which fetches and removes them, upload less, or ask for a larger "
        "castor serve --study-files",
    )
    return ByteQuota(terms, list_stored)


def no_quota() -> ByteQuota:
    """Return a quota without a bound."""
    return ByteQuota(QuotaTerms(math.inf, "", "files", ""))


def _sizes(directory: Path) -> Iterator[tuple[Path, int]]:
    """Yield the whole files of a directory and their sizes in bytes."""
    for path in directory.iterdir() if directory.is_dir() else ():
        if not path.name.startswith(_PARTIAL) and path.is_file():
            yield path, path.stat().st_size
