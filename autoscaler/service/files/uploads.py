"""Uploaded files: bundles of jobs, and artifacts of trials."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO

from fastapi.concurrency import run_in_threadpool

from autoscaler.domain.errors import NotFound, SpecError
from autoscaler.domain.paths import inside
from autoscaler.domain.rules import require_sha256
from autoscaler.domain.trial import MAXIMUM_FILE_BYTES
from autoscaler.service.files.free_space import DEFAULT_SPACE, FreeSpace
from autoscaler.spec.bundle import inspect

_MOST_COMPRESSED = 16  # maximum ratio of a bundle's files to its archive


class Bundles:
    """Packed working directories, by the SHA-256 of their files."""

    def __init__(
        self, directory: Path, maximum_bytes: int, space: FreeSpace = DEFAULT_SPACE
    ) -> None:
        self._space = space
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

    async def receive(self, sha256: str, chunks: AsyncIterator[bytes]) -> None:
        """Store an upload; an existing bundle stays as it is.

        Raises:
            SpecError: the upload is too large, or its files have another SHA-256.
            Unavailable: the disk is nearly full.
        """
        final = self._at(sha256)
        too_large = (
            f"the bundle is larger than the {self._maximum_bytes:,} bytes that this controller "
            "takes: leave files out with .castorignore"
        )
        checked = self._space.checked(chunks, self._directory, "the bundle")
        upload = _received(checked, self._directory, self._maximum_bytes, too_large)
        async with upload as (file, _):
            most_bytes = self._maximum_bytes * _MOST_COMPRESSED
            bundle = await run_in_threadpool(inspect, file, most_bytes)
            if bundle.sha256 != sha256:
                raise SpecError(
                    f"the bundle holds {bundle.sha256[:12]}, not {sha256[:12]}: it was changed on "
                    "its way"
                )
            _keep(file, final)

    @property
    def maximum_bytes(self) -> int:
        """Limit on the size of an archive."""
        return self._maximum_bytes

    @contextmanager
    def workplace(self) -> Iterator[Path]:
        """Yield an empty directory on the disk of the bundles, and remove it afterwards."""
        with tempfile.TemporaryDirectory(prefix=".upload-", dir=self._directory) as name:
            yield Path(name)

    def checked(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the chunks of an upload to a workplace while the disk has room.

        Raises:
            Unavailable: the disk is nearly full.
        """
        return self._space.checked(chunks, self._directory, "the upload")

    def keep(self, sha256: str, archive: Path) -> None:
        """Keep an archive that was packed in a workplace; an existing bundle stays as it is."""
        _keep(archive, self._at(sha256))

    def _at(self, sha256: str) -> Path:
        require_sha256(sha256)
        return inside(self._directory, f"{sha256}.tar.gz")


class TrialFiles:
    """Artifacts on their way from trials to the driver of their study, by SHA-256."""

    def __init__(
        self,
        directory: Path,
        maximum_bytes: int = MAXIMUM_FILE_BYTES,
        space: FreeSpace = DEFAULT_SPACE,
    ) -> None:
        self._space = space
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

    async def receive(self, study: str, sha256: str, chunks: AsyncIterator[bytes]) -> None:
        """Store an upload.

        Raises:
            SpecError: the upload is too large, or has another SHA-256.
            Unavailable: the disk is nearly full.
        """
        final = self._at(study, sha256)
        final.parent.mkdir(parents=True, exist_ok=True)
        too_large = f"the file is larger than the {self._maximum_bytes:,} bytes that are taken"
        checked = self._space.checked(chunks, final.parent, f"the file of study {study}")
        upload = _received(checked, final.parent, self._maximum_bytes, too_large)
        async with upload as (file, received_sha256):
            if received_sha256 != sha256:
                raise SpecError(f"the file is not {sha256[:12]}: it was changed on its way")
            _keep(file, final)

    def remove(self, study: str, sha256: str) -> None:
        """Remove a file that the driver has fetched."""
        self._at(study, sha256).unlink(missing_ok=True)

    def clear(self, study: str) -> None:
        """Remove the files of a study whose driver has ended."""
        shutil.rmtree(self._of(study), ignore_errors=True)

    def _at(self, study: str, sha256: str) -> Path:
        require_sha256(sha256)
        return inside(self._of(study), sha256)

    def _of(self, study: str) -> Path:
        name = hashlib.sha256(study.encode(errors="replace")).hexdigest()[:32]
        return inside(self._directory, name)


def unknown_bundle(sha256: str) -> NotFound:
    """Return the error for a bundle that was not uploaded by those who may use it."""
    return NotFound(f"bundle {sha256[:12]} was not uploaded: submit the job again")


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
