"""Where a copy of the job's log goes, so that it outlives the instance.

Where the job's files are in storage the copy lies there in parts, each named by the offset that it
begins at; else the controller takes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from autoscaler.domain.storage import log_folder, log_part_name
from autoscaler.node.grants import Grants
from autoscaler.objects import Objects, open_grant
from autoscaler.wire.client import NodeClient

_PATIENCE_SECONDS: Final = 2.0  # heartbeats wait for it
_PART_SECONDS: Final = 5.0
_CHUNK_BYTES: Final = 1 << 18
_PART_BYTES: Final = 4 << 20


class LogCopy(Protocol):
    """Takes a log in, from where its copy ends."""

    @property
    def interval_seconds(self) -> float:
        """How long to wait between two parts, unless it is the last."""

    @property
    def part_bytes(self) -> int:
        """How much it takes at a time."""

    def append_log(self, offset: int, text: bytes, job: str) -> int:
        """Add what was written from `offset` on; returns where the copy ends, also of nothing.

        Raises:
            CastorError: it is not taken in, or that is not known.
        """


class LogCopies:
    """The copy of an instance's log; see `LogCopy`. Used by one thread at a time."""

    def __init__(self, instance: str, client: NodeClient, grants: Grants) -> None:
        self._instance = instance
        self._client = client
        self._grants = grants
        self._objects: Objects | None = None

    @property
    def interval_seconds(self) -> float:
        """Each part in storage is a call that costs, and an object."""
        return 0.0 if self._grants.path is None else _PART_SECONDS

    @property
    def part_bytes(self) -> int:
        """Few large parts, or requests of a modest size."""
        return _CHUNK_BYTES if self._grants.path is None else _PART_BYTES

    def append_log(self, offset: int, text: bytes, job: str) -> int:
        """Add to the copy in storage, or to the controller's."""
        file = self._grants.path
        if file is None:
            return self._client.append_log(offset, text, job)
        objects = self._objects = self._objects or open_grant(
            file, patience_seconds=_PATIENCE_SECONDS, meter=self._grants.meter
        )
        folder = log_folder(job, self._instance)
        if text:
            objects.put(f"{folder}/{log_part_name(offset)}", text)
            return offset + len(text)
        parts = objects.listed(folder)
        return int(Path(parts[-1].name).name) + parts[-1].bytes if parts else 0
