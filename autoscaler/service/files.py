"""What the controller keeps as files: packed working directories and logs."""

from __future__ import annotations

import codecs
import os
import re
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from autoscaler.domain.errors import NotFound, SpecError
from autoscaler.wire.messages import LogPart

_PART_BYTES = 1 << 18
_SHA256 = re.compile(r"[0-9a-f]{64}")


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
        """Keep an upload; one bundle may be uploaded twice at the same time.

        Its name is the SHA-256 of the files in it, and is checked where they are unpacked.

        Raises:
            SpecError: it is larger than this controller takes.
        """
        final = self._at(sha256)
        descriptor, name = tempfile.mkstemp(dir=self._directory, prefix=".")
        partial = Path(name)
        received_bytes = 0
        try:
            with os.fdopen(descriptor, "wb") as file:
                async for chunk in chunks:
                    received_bytes += len(chunk)
                    if received_bytes > self._maximum_bytes:
                        raise SpecError(
                            f"the bundle is larger than the {self._maximum_bytes:,} bytes that "
                            "this controller takes: leave files out with .castorignore"
                        )
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(final)
        finally:
            partial.unlink(missing_ok=True)

    def _at(self, sha256: str) -> Path:
        if not _SHA256.fullmatch(sha256):
            raise SpecError(f"{sha256[:80]!r} is not a SHA-256")
        return self._directory / f"{sha256}.tar.gz"


class Logs:
    """What jobs wrote, one file an instance; they outlive the instances."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()

    def append(self, job: str, instance: str, offset: int, text: bytes) -> int:
        """Add what an instance wrote from `offset` on; returns where the copy ends now.

        What was handed in before is not added again; after a gap nothing is.
        """
        path = self._directory / job / f"{instance}.log"
        with self._lock:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                end = file.tell()
                if offset <= end < offset + len(text):
                    file.write(text[end - offset :])
                return file.tell()

    def read(self, job: str, offsets: Mapping[str, int]) -> tuple[LogPart, ...]:
        """What the job's instances wrote from these offsets on, a part of each at most.

        A character whose last bytes are not there yet is left to the next part.
        """
        directory = self._directory / job
        paths = sorted(directory.glob("*.log")) if directory.is_dir() else []
        parts = []
        for path in paths:
            offset = max(offsets.get(path.stem, 0), 0)
            with path.open("rb") as file:
                file.seek(offset)
                text = file.read(_PART_BYTES)
            decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
            decoded = decoder.decode(text)
            if decoded:
                unfinished, _ = decoder.getstate()
                parts.append(LogPart(path.stem, offset + len(text) - len(unfinished), decoded))
        return tuple(parts)
