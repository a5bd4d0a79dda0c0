"""Logs that instances copy to a cloud's storage, fetched when they are read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import ProviderError
from autoscaler.domain.job import JobRecord
from autoscaler.domain.storage import is_log_part, log_folder, log_part_name
from autoscaler.objects import Objects
from autoscaler.service.files.job_log_limit import JobLogLimit, is_cut
from autoscaler.service.files.logs import Logs
from autoscaler.service.files.stored import file_owner
from autoscaler.wire.messages import LogPart

_log = logging.getLogger(__name__)

_LARGEST_PART: Final = 64 << 20  # agents write parts of 4 MiB
_LEAST_SECONDS: Final = 2.0  # between two listings for one job
_MOST_LISTED_JOBS: Final = 1000


class StoredLogs(Logs):
    """Logs in a storage, in parts, with a local copy of the parts that were ever read."""

    def __init__(
        self,
        directory: Path,
        objects: Objects,
        find: Callable[[str], JobRecord],
        clock: Clock,
        limit: JobLogLimit | None = None,
    ) -> None:
        """Read from `objects`, the storage of all jobs; `find` returns a job by its id."""
        super().__init__(directory, clock, limit=limit)
        self._objects = objects
        self._find = find
        self._looked_seconds: dict[str, float] = {}
        self._looking = threading.Lock()

    def read(self, job: str, offsets: Mapping[str, int]) -> tuple[LogPart, ...]:
        """Return parts of the logs as `Logs.read` does.

        Without the storage, only the local copy.
        """
        if self._is_due(job):
            try:
                self._copy_parts(self._find(job))
            except ProviderError as error:
                _log.warning("the log of %s is not read on: %s", job, error)
        return super().read(job, offsets)

    def _is_due(self, job: str) -> bool:
        with self._looking:
            now_seconds = self._clock.monotonic()
            looked_seconds = self._looked_seconds.get(job)
            if looked_seconds is not None and now_seconds - looked_seconds < _LEAST_SECONDS:
                return False
            if len(self._looked_seconds) >= _MOST_LISTED_JOBS:
                self._looked_seconds.clear()
            self._looked_seconds[job] = now_seconds
            return True

    def _copy_parts(self, job: JobRecord) -> None:
        folder = f"{file_owner(job)}/{log_folder(job.id)}"
        for instance in self._objects.folders(folder):
            self._copy_instance_parts(job.id, instance, f"{folder}/{instance}")

    def _copy_instance_parts(self, job: str, instance: str, folder: str) -> None:
        """Append the stored parts that begin at the end of the local copy or later.

        A local copy that was dropped or cut gets no further parts.
        """
        end = self.end(job, instance)
        after = None if end == 0 else f"{folder}/{log_part_name(end - 1)}"
        for part in self._objects.listed(folder, after):
            name = PurePosixPath(part.name).name
            if is_cut(self._at(job, instance)):
                return
            if is_log_part(name) and part.bytes <= _LARGEST_PART:  # instances write these
                self.append(job, instance, int(name), self._objects.get(part.name))
