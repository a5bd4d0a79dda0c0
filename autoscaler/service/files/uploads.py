"""Uploaded files: bundles of jobs, and artifacts of trials."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO

from fastapi.concurrency import run_in_threadpool

from autoscaler.domain.errors import NotFound, SpecError
from autoscaler.domain.paths import inside
from autoscaler.domain.rules import require_sha256
from autoscaler.domain.trial import MAXIMUM_FILE_BYTES
from autoscaler.service.files.free_space import DEFAULT_SPACE, FreeSpace
from autoscaler.service.files.quotas import ARCHIVE_SUFFIX, ByteQuota, StoredFile, no_quota
from autoscaler.spec.bundle import inspect

Count = Callable[[int], None]

_MOST_COMPRESSED = 16  # maximum ratio of a bundle's files to its archive


class Bundles:
    """Packed working directories, by the SHA-256 of their files.

    `quota` bounds the bytes of each person who uploads bundles; None: no bound.
    """

    def __init__(
        self,
        directory: Path,
        maximum_bytes: int,
        space: FreeSpace = DEFAULT_SPACE,
        quota: ByteQuota | None = None,
    ) -> None:
        self._space = space
        self._quota = quota or no_quota()
        self._directory = directory
        self._maximum_bytes = maximum_bytes
        directory.mkdir(parents=True, exist_ok=True)

    def path(self, sha256: str) -> Path:
        """Return the path of a bundle, and record its use, since unused bundles are deleted.

        Raises:
            NotFound: the bundle was not uploaded.
        """
        path = self._at(sha256)
        try:
            os.utime(path)
        except FileNotFoundError:
            raise unknown_bundle(sha256) from None
        return path

    async def receive(
        self, sha256: str, chunks: AsyncIterator[bytes], person: str, declared_bytes: int = 0
    ) -> None:
        """Store an upload of a person; an existing bundle stays as it is.

        Nothing is read of an upload that is declared to be too large; 0: its size is not declared.

        Raises:
            SpecError: the upload is too large, or its files have another SHA-256.
            OverQuota: the person would have too many bytes.
            Unavailable: the disk is nearly full.
        """
        require_sha256(sha256)
        too_large = (
            f"the bundle is larger than the {self._maximum_bytes:,} bytes that this controller "
            "takes: leave files out with .castorignore"
        )
        if declared_bytes > self._maximum_bytes:
            raise SpecError(too_large)
        async with self.arriving(person) as count:
            checked = self.checked(chunks, count)
            upload = _received(checked, self._directory, self._maximum_bytes, too_large)
            async with upload as (file, _):
                most_bytes = self._maximum_bytes * _MOST_COMPRESSED
                bundle = await run_in_threadpool(inspect, file, most_bytes)
                if bundle.sha256 != sha256:
                    raise SpecError(
                        f"the bundle holds {bundle.sha256[:12]}, not {sha256[:12]}: it was "
                        "changed on its way"
                    )
                await run_in_threadpool(self.keep, sha256, file, person)

    @property
    def maximum_bytes(self) -> int:
        """Limit on the size of an archive."""
        return self._maximum_bytes

    @contextmanager
    def workplace(self) -> Iterator[Path]:
        """Yield an empty directory on the disk of the bundles, and remove it afterwards."""
        with tempfile.TemporaryDirectory(prefix=".upload-", dir=self._directory) as name:
            yield Path(name)

    @asynccontextmanager
    async def arriving(self, person: str) -> AsyncIterator[Count]:
        """Yield a function that counts the bytes of a person's upload until the context ends.

        The function raises `OverQuota` if the person would have too many bytes.
        """
        await run_in_threadpool(self._quota.load)
        with self._quota.arriving(person, person) as count:
            yield count

    async def checked(self, chunks: AsyncIterator[bytes], count: Count) -> AsyncIterator[bytes]:
        """Yield the chunks of an upload while there is room, and count their bytes.

        Raises:
            OverQuota: as `count`.
            Unavailable: the disk is nearly full.
        """
        async for chunk in self._space.checked(chunks, self._directory, "the bundle"):
            count(len(chunk))
            yield chunk

    def keep(self, sha256: str, archive: Path, person: str) -> None:
        """Keep an archive as a bundle of a person; an existing bundle stays as it is.

        Raises:
            OverQuota: the person would have too many bytes.
        """
        final = self._at(sha256)
        self._quota.keep(StoredFile(person, final.name, archive.stat().st_size), person)
        _keep(archive, final)

    def forget(self, path: Path) -> None:
        """Stop counting a bundle that was deleted."""
        if path.parent == self._directory:
            self._quota.forget(path.name)

    def _at(self, sha256: str) -> Path:
        require_sha256(sha256)
        return inside(self._directory, f"{sha256}{ARCHIVE_SUFFIX}")


class TrialFiles:
    """Artifacts on their way from trials to the driver of their study, by SHA-256.

    `quota` bounds the bytes of each study; None: no bound.
    """

    def __init__(
        self,
        directory: Path,
        maximum_bytes: int = MAXIMUM_FILE_BYTES,
        space: FreeSpace = DEFAULT_SPACE,
        quota: ByteQuota | None = None,
    ) -> None:
        self._space = space
        self._quota = quota or no_quota()
        self._directory = directory
        self._maximum_bytes = maximum_bytes

    def path(self, study: str, sha256: str) -> Path:
        """Return the path of a file.

        Raises:
            NotFound: the file was not uploaded, or the driver has fetched and removed it.
        """
        path = self._at(study, sha256)
        if not path.exists():
            raise NotFound(f"file {sha256[:12]} of study {study} was not uploaded")
        return path

    async def receive(
        self, study: str, sha256: str, chunks: AsyncIterator[bytes], declared_bytes: int = 0
    ) -> None:
        """Store an upload. `declared_bytes` is as for bundles.

        Raises:
            SpecError: the upload is too large, or has another SHA-256.
            OverQuota: the study would have too many bytes.
            Unavailable: the disk is nearly full.
        """
        final = self._at(study, sha256)
        too_large = f"the file is larger than the {self._maximum_bytes:,} bytes that are taken"
        if declared_bytes > self._maximum_bytes:
            raise SpecError(too_large)
        account, name = final.parent.name, f"study {study}"
        final.parent.mkdir(parents=True, exist_ok=True)
        await run_in_threadpool(self._quota.load)
        with self._quota.arriving(account, name) as count:
            checked = self._checked(chunks, study, final.parent, count)
            upload = _received(checked, final.parent, self._maximum_bytes, too_large)
            async with upload as (file, received_sha256):
                if received_sha256 != sha256:
                    raise SpecError(f"the file is not {sha256[:12]}: it was changed on its way")
                kept = StoredFile(account, _file_name(final), file.stat().st_size)
                self._quota.keep(kept, name)
                _keep(file, final)

    async def _checked(
        self, chunks: AsyncIterator[bytes], study: str, directory: Path, count: Count
    ) -> AsyncIterator[bytes]:
        async for chunk in self._space.checked(chunks, directory, f"the file of study {study}"):
            count(len(chunk))
            yield chunk

    def remove(self, study: str, sha256: str) -> None:
        """Remove a file that the driver has fetched."""
        path = self._at(study, sha256)
        path.unlink(missing_ok=True)
        self._quota.forget(_file_name(path))

    def clear(self, study: str) -> None:
        """Remove the files of a study whose driver has ended."""
        shutil.rmtree(self._of(study), ignore_errors=True)
        self._quota.forget_all(self._of(study).name)

    def forget(self, path: Path) -> None:
        """Stop counting a file that was deleted."""
        if path.parent.parent == self._directory:
            self._quota.forget(_file_name(path))

    def _at(self, study: str, sha256: str) -> Path:
        require_sha256(sha256)
        return inside(self._of(study), sha256)

    def _of(self, study: str) -> Path:
        name = hashlib.sha256(study.encode(errors="replace")).hexdigest()[:32]
        return inside(self._directory, name)


def unknown_bundle(sha256: str) -> NotFound:
    """Return the error for a bundle that was not uploaded by those who may use it."""
    return NotFound(f"bundle {sha256[:12]} was not uploaded: submit the job again")


def _file_name(path: Path) -> str:
    """Return the name of a study's file among those of all studies."""
    return f"{path.parent.name}/{path.name}"


def _keep(received: Path, final: Path) -> None:
    """Move a checked upload to its final path, unless the file is there already."""
    if not final.exists():
        received.rename(final)


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


@asynccontextmanager
async def _received(
    chunks: AsyncIterator[bytes], directory: Path, maximum_bytes: int, too_large: str
) -> AsyncIterator[tuple[Path, str]]:
    """Yield the path of an upload, written and synced to disk, and its SHA-256.

    The file is removed afterwards unless it was renamed.
    """
    descriptor, name = tempfile.mkstemp(dir=directory, prefix=".")
    hashed, received_bytes = hashlib.sha256(), 0
    try:
        with os.fdopen(descriptor, "wb") as file:
            async for chunk in chunks:
                received_bytes += len(chunk)
                if received_bytes > maximum_bytes:
                    raise SpecError(too_large)
                hashed.update(chunk)
                await run_in_threadpool(file.write, chunk)
            await run_in_threadpool(_flush, file)
        yield Path(name), hashed.hexdigest()
    finally:
        Path(name).unlink(missing_ok=True)
