"""Copy of the job's log, which outlives the instance.

If the job's files are in storage, the copy is there in parts, each named by its offset in the log.
Otherwise the controller holds the copy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from autoscaler.domain.storage import log_folder, log_part_name
from autoscaler.node.files.grants import Grants
from autoscaler.objects import Objects, open_grant
from autoscaler.wire.node_client import NodeClient

_STORAGE_TIMEOUT_SECONDS: Final = 2.0  # blocks heartbeats
_PART_SECONDS: Final = 5.0
_CHUNK_BYTES: Final = 1 << 18
_PART_BYTES: Final = 4 << 20


class LogCopy(Protocol):
    """Destination of a log, which is appended at the end of the copy."""

    @property
    def interval_seconds(self) -> float:
        """Least time between two parts in seconds, except before the last part."""

    @property
    def part_bytes(self) -> int:
        """Largest size of a part in bytes."""

    def append_log(self, offset: int, text: bytes, job: str) -> int:
        """Append text that starts at `offset`; return the size of the copy in bytes.

        Empty text only requests the size.

        Raises:
            CastorError: the text was not appended, or the outcome is unknown.
        """


class LogCopies:
    """Copy of an instance's log in storage or at the controller. For one thread at a time."""

    def __init__(self, instance: str, client: NodeClient, grants: Grants) -> None:
        self._instance = instance
        self._client = client
        self._grants = grants
        self._objects: Objects | None = None

    @property
    def interval_seconds(self) -> float:
        """Least seconds between parts: each part in storage is a billed call and an object."""
        return 0.0 if self._grants.path is None else _PART_SECONDS

    @property
    def part_bytes(self) -> int:
        """Largest part in bytes: large for storage, moderate for requests to the controller."""
        return _CHUNK_BYTES if self._grants.path is None else _PART_BYTES

    def append_log(self, offset: int, text: bytes, job: str) -> int:
        """Append to the copy in storage, or to the controller's; see `LogCopy`."""
        file = self._grants.path
        if file is None:
            return self._client.append_log(offset, text, job)
        objects = self._objects = self._objects or open_grant(
            file, patience_seconds=_STORAGE_TIMEOUT_SECONDS, meter=self._grants.meter
        )
        folder = log_folder(job, self._instance)
        if text:
            objects.put(f"{folder}/{log_part_name(offset)}", text)
            return offset + len(text)
        parts = objects.listed(folder)
        return int(Path(parts[-1].name).name) + parts[-1].bytes if parts else 0
