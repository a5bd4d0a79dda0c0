"""Limit on the logs of all instances of one job together.

The logs of instances that have ended or work for another job make room, the oldest first. If that
does not suffice, the log that has something to add ends. No job fails because of its logs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import StoreError
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

LOGS_DROPPED: Final = "logs dropped"
_MOST_KNOWN_JOBS: Final = 10_000
_MOST_NAMES: Final = 5
_LEAST_DROPPED_BYTES: Final = 200
_DROPPED: Final = (
    b"castor: the %d bytes of this log were dropped: all logs of a job have %d bytes\n"
)
_CUT: Final = b"\ncastor: all logs of a job have %d bytes: what follows is not here\n"


@dataclass(frozen=True, slots=True)
class JobLogLimit:
    """Limit in bytes, and what it needs to know.

    `working` returns the ids of the instances that work for a job, whose logs stay. `record` is
    called with a job and a text when logs were dropped or cut.
    """

    maximum_bytes: int
    working: Callable[[str], Collection[str]]
    record: Callable[[str, str], None]


def stored_limit(store: Store, clock: Clock, maximum_bytes: int) -> JobLogLimit:
    """Return the limit that takes the instances of jobs from a store, and adds events to it."""

    def working(job: str) -> set[str]:
        return {held.id for held in store.instances.of_job(job)}

    def record(job: str, text: str) -> None:
        try:
            store.events.add(Event(clock.now(), LOGS_DROPPED, text, job))
        except StoreError:
            _log.exception("%s: %s", job, text)

    return JobLogLimit(maximum_bytes, working, record)


class JobLogSizes:
    """Sizes of the logs of each job, in memory, and the room that a limit leaves in them."""

    def __init__(self, limit: JobLogLimit | None) -> None:
        """Measure nothing yet. None for `limit` means that there is always room."""
        self._limit = limit
        self._bytes: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, directory: Path, added_bytes: int) -> None:
        """Count bytes that were added to a log in the directory of a job."""
        with self._lock:
            self._bytes[directory.name] = self._of(directory) + added_bytes

    def make_room(self, log: Path, needed_bytes: int) -> bool:
        """Return whether `needed_bytes` fit in, after logs of ended instances were dropped.

        Args:
            log: the file of the log to be extended, which is not dropped.
            needed_bytes: number of bytes that it gets.
        """
        limit, directory = self._limit, log.parent
        if limit is None or self._fits(directory, needed_bytes, limit):
            return True
        working = limit.working(directory.name)
        dropped: list[str] = []
        for path in _oldest_logs(directory):
            if path != log and path.stem not in working and _is_droppable(path):
                self._drop(path, limit)
                dropped.append(path.stem)
                if self._fits(directory, needed_bytes, limit):
                    break
        if dropped:
            limit.record(directory.name, _dropped_text(dropped, limit))
        return self._fits(directory, needed_bytes, limit)

    def cut(self, log: Path) -> None:
        """End a log for which there is no room."""
        assert self._limit is not None, "without a limit there is room"
        maximum_bytes = self._limit.maximum_bytes
        _mark(log).touch()
        with log.open("ab") as file:
            self.add(log.parent, file.write(_CUT % maximum_bytes))
        self._limit.record(
            log.parent.name,
            f"the log of {log.stem} ends here: all logs of a job have {maximum_bytes:,} bytes "
            "(castor serve --job-logs)",
        )

    def _drop(self, path: Path, limit: JobLogLimit) -> None:
        """Replace a log by a line that says so. No text follows: the mark outlives a restart."""
        size_bytes = path.stat().st_size
        _mark(path).touch()
        path.with_suffix(".times").unlink(missing_ok=True)
        left_bytes = path.write_bytes(_DROPPED % (size_bytes, limit.maximum_bytes))
        self.add(path.parent, left_bytes - size_bytes)

    def _fits(self, directory: Path, needed_bytes: int, limit: JobLogLimit) -> bool:
        with self._lock:
            return self._of(directory) + needed_bytes <= limit.maximum_bytes

    def _of(self, directory: Path) -> int:
        """Return the bytes of a job's logs, which the first call measures."""
        if directory.name not in self._bytes:
            if len(self._bytes) >= _MOST_KNOWN_JOBS:
                self._bytes.clear()
            self._bytes[directory.name] = sum(
                path.stat().st_size for path in directory.glob("*.log")
            )
        return self._bytes[directory.name]


def is_cut(log: Path) -> bool:
    """Return whether a log was dropped or cut, so that it takes no more text."""
    return _mark(log).exists()


def _is_droppable(log: Path) -> bool:
    """Return whether a log is longer than the line that would replace it."""
    return log.stat().st_size > _LEAST_DROPPED_BYTES and not is_cut(log)


def _mark(log: Path) -> Path:
    return log.with_suffix(".cut")


def _oldest_logs(directory: Path) -> Sequence[Path]:
    """Return the logs of a job, the one without new text for the longest time first."""
    return sorted(directory.glob("*.log"), key=lambda path: path.stat().st_mtime)


def _dropped_text(instances: Sequence[str], limit: JobLogLimit) -> str:
    more = len(instances) - _MOST_NAMES
    names = ", ".join(instances[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    return (
        f"the logs of ended instances were dropped, the oldest first: {names}. All logs of a job "
        f"have {limit.maximum_bytes:,} bytes (castor serve --job-logs)"
    )
