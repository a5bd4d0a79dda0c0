"""Free space on the controller's disk, which logs and uploads must leave to the store."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoscaler.domain.errors import Unavailable

LEAST_FREE_BYTES: Final = 1 << 30
_CHECKED_BYTES: Final = 16 << 20


def free_bytes(directory: Path) -> int:
    """Return the free bytes of the disk that has a directory."""
    return shutil.disk_usage(directory).free


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Check that a disk keeps `least_bytes` free. `measure` returns the free bytes at a path."""

    least_bytes: int = LEAST_FREE_BYTES
    measure: Callable[[Path], int] = free_bytes

    def require(self, directory: Path, description: str) -> None:
        """Check the disk that has `directory` before `description` is stored there.

        Raises:
            Unavailable: too little would be left; the sender tries again later.
        """
        if self.measure(directory) < self.least_bytes:
            raise Unavailable(
                f"the controller's disk has less than {self.least_bytes / 1e9:.1f} GB left, which "
                f"are kept for its store: {description} must wait until there is more space at "
                f"{directory}"
            )

    async def checked(
        self, chunks: AsyncIterator[bytes], directory: Path, description: str
    ) -> AsyncIterator[bytes]:
        """Yield the chunks of an upload, and check the disk at its start and each 16 MiB.

        Raises:
            Unavailable: too little would be left.
        """
        unchecked_bytes = _CHECKED_BYTES
        async for chunk in chunks:
            unchecked_bytes += len(chunk)
            if unchecked_bytes >= _CHECKED_BYTES:
                unchecked_bytes = 0
                self.require(directory, description)
            yield chunk


DEFAULT_SPACE: Final = FreeSpace()
