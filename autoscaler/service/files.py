"""What the controller keeps as files: packed working directories, logs, files of trials."""

from __future__ import annotations

import codecs
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from fastapi.concurrency import run_in_threadpool

from autoscaler.clock import Clock
from autoscaler.domain.errors import NotFound, SpecError
from autoscaler.domain.paths import inside
from autoscaler.domain.rules import require_sha256
from autoscaler.domain.trial import MAXIMUM_FILE_BYTES
from autoscaler.service.log_times import LogTimes
from autoscaler.spec.bundle import inspect
from autoscaler.wire.messages import EVERY_INSTANCE, LogPart

MAXIMUM_LOG_BYTES = 1 << 30

_PART_BYTES = 1 << 18
_CUT = b"\ncastor: of the log of an instance %d bytes are kept: what follows is not here\n"
_MOST_COMPRESSED = 16  # times as large as its archive the files of a bundle may be


class Bundles:
    """Packed working directories, by the SHA-256 of the files in them."""

    def __init__(self, directory: Path, maximum_bytes: int) -> None:
        self._directory = directory
        self._maximum_bytes = maximum_bytes
        directory.mkdir(parents=True, exist_ok=True)

    def path(self, sha256: str) -> Path:
        """Where the bundle lies.

        Raises:
            NotFound: it was not uploaded.
        """
        path = self._at(sha256)
        if not path.exists():
            raise NotFound(f"bundle {sha256[:12]} was not uploaded: submit the job again")
        return path

    async def receive(self, sha256: str, chunks: AsyncIterator[bytes]) -> None:
        """Keep an upload. A bundle that is here already stays as it is.

        Raises:
            SpecError: the upload is larger than this controller takes, or does not hold the files
                whose SHA-256 its name is.
        """
        final = self._at(sha256)
        too_large = (
            f"the bundle is larger than the {self._maximum_bytes:,} bytes that this controller "
            "takes: leave files out with .castorignore"
        )
        async with _received(chunks, self._directory, self._maximum_bytes, too_large) as (file, _):
            most_bytes = self._maximum_bytes * _MOST_COMPRESSED
            bundle = await run_in_threadpool(inspect, file, most_bytes)
            if bundle.sha256 != sha256:
                raise SpecError(
                    f"the bundle holds {bundle.sha256[:12]}, not {sha256[:12]}: it was changed on "
                    "its way"
                )
            _keep(file, final)

    def _at(self, sha256: str) -> Path:
        require_sha256(sha256)
        return inside(self._directory, f"{sha256}.tar.gz")


class TrialFiles:
    """Files on their way from trials to the driver of their study, by the SHA-256 of each."""

    def __init__(self, directory: Path, maximum_bytes: int = MAXIMUM_FILE_BYTES) -> None:
        self._directory = directory
        self._maximum_bytes = maximum_bytes

    def path(self, study: str, sha256: str) -> Path:
        """Where the file lies.

        Raises:
            NotFound: it was not uploaded, or the driver has it already.
        """
        path = self._at(study, sha256)
        if not path.exists():
            raise NotFound(f"file {sha256[:12]} of study {study} was not uploaded")
        return path

    async def receive(self, study: str, sha256: str, chunks: AsyncIterator[bytes]) -> None:
        """Keep an upload.

        Raises:
            SpecError: it is larger than this controller takes, or not what its name says.
        """
        final = self._at(study, sha256)
        final.parent.mkdir(parents=True, exist_ok=True)
        too_large = f"the file is larger than the {self._maximum_bytes:,} bytes that are taken"
        upload = _received(chunks, final.parent, self._maximum_bytes, too_large)
        async with upload as (file, found):
            if found != sha256:
                raise SpecError(f"the file is not {sha256[:12]}: it was changed on its way")
            _keep(file, final)

    def remove(self, study: str, sha256: str) -> None:
        """The driver has the file."""
        self._at(study, sha256).unlink(missing_ok=True)

    def clear(self, study: str) -> None:
        """The driver has ended: nobody fetches any more what was left."""
        shutil.rmtree(self._of(study), ignore_errors=True)

    def _at(self, study: str, sha256: str) -> Path:
        require_sha256(sha256)
        return inside(self._of(study), sha256)

    def _of(self, study: str) -> Path:
        name = hashlib.sha256(study.encode(errors="replace")).hexdigest()[:32]
        return inside(self._directory, name)


class Logs:
    """What jobs wrote, one file an instance; they outlive the instances."""

    def __init__(
        self, directory: Path, clock: Clock, maximum_bytes: int = MAXIMUM_LOG_BYTES
    ) -> None:
        """`maximum_bytes` are kept of each instance's log, and a line that says so."""
        self._directory = directory
        self._clock = clock
        self._maximum_bytes = maximum_bytes
        self._lock = threading.Lock()

    def append(self, job: str, instance: str, offset: int, text: bytes) -> int:
        """Add what an instance wrote from `offset` on; return where it is to go on.

        That is the end of the copy. What was handed in before is not added again; after a gap
        nothing is. Of a log that has reached its limit the rest is passed over.
        """
        path = self._at(job, instance)
        with self._lock:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                end = file.tell()
                if end >= self._maximum_bytes:
                    return max(offset + len(text), end)
                if offset <= end < offset + len(text):
                    LogTimes(path).add(end, self._clock.now())
                    file.write(text[end - offset :])
                    if file.tell() >= self._maximum_bytes:
                        file.write(_CUT % self._maximum_bytes)
                return file.tell()

    def end(self, job: str, instance: str) -> int:
        """Where the copy of an instance's log ends."""
        path = self._at(job, instance)
        return path.stat().st_size if path.exists() else 0

    def read(self, job: str, offsets: Mapping[str, int]) -> tuple[LogPart, ...]:
        """Return what the job's instances wrote from these offsets on, a part of each at most.

        A character whose last bytes are not there yet is left to the next part.

        Args:
            job: the id of the job.
            offsets: by instance, and under `EVERY_INSTANCE` for all others; a negative offset
                counts from the end of the log.
        """
        directory = inside(self._directory, job)
        paths = sorted(directory.glob("*.log")) if directory.is_dir() else []
        parts = []
        for path in paths:
            with path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                offset = offsets.get(path.stem, offsets.get(EVERY_INSTANCE, 0))
                offset = min(max(offset + end if offset < 0 else offset, 0), end)
                file.seek(offset)
                text = file.read(_PART_BYTES)
            decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
            decoded = decoder.decode(text)
            if decoded:
                unfinished, _ = decoder.getstate()
                next_offset = offset + len(text) - len(unfinished)
                times = _character_times(text, offset, LogTimes(path).between(offset, next_offset))
                parts.append(LogPart(path.stem, next_offset, decoded, times, offset))
        return tuple(parts)

    def _at(self, job: str, instance: str) -> Path:
        return inside(self._directory, job, f"{instance}.log")


def _keep(received: Path, final: Path) -> None:
    """Keep a file that was received and checked, unless one of its content is there already."""
    if not final.exists():
        received.rename(final)


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _character_times(
    text: bytes, offset: int, times: Sequence[tuple[int, float]]
) -> tuple[tuple[int, float], ...]:
    """Return the times of a text that begins at `offset`, by places of its characters."""
    places: list[tuple[int, float]] = []
    characters = done = 0
    for begin, seconds in times:
        characters += len(text[done : begin - offset].decode(errors="replace"))
        done = begin - offset
        places.append((characters, seconds))
    return tuple(places)


@asynccontextmanager
async def _received(
    chunks: AsyncIterator[bytes], directory: Path, maximum_bytes: int, too_large: str
) -> AsyncIterator[tuple[Path, str]]:
    """An upload as a file of that directory, whole and safe on the disk, and its SHA-256.

    It is gone afterwards unless it was renamed.
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
