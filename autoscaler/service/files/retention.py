"""Deletion of files in the state directory that no job needs any more."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.job import JobRecord
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

_INTERVAL_SECONDS: Final = 3600.0
# An upload that was cut off leaves a file with this beginning.
_PARTIAL: Final = "."
_PARTIAL_SECONDS: Final = 86_400.0
_SUFFIX: Final = ".tar.gz"


class FileRetention:
    """Deletion of old logs, bundles and files of trials, in a thread of its own, once an hour.

    Checkpoints and outputs of jobs stay: only their owners know whether they need them.
    """

    def __init__(
        self,
        state: Path,
        store: Store,
        keep_seconds: float,
        clock: Clock,
        on_deleted: Callable[[Path], None] = lambda path: None,
    ) -> None:
        """Delete below `state` what has not been used for `keep_seconds`."""
        self._on_deleted = on_deleted
        self._state = state
        self._store = store
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._begun_seconds = float("-inf")

    def run_when_due(self) -> None:
        """Begin a pass in a thread, if the last one began an hour ago."""
        moment_seconds = self._clock.monotonic()
        if moment_seconds - self._begun_seconds < _INTERVAL_SECONDS:
            return
        self._begun_seconds = moment_seconds
        threading.Thread(target=self._attempt, name="castor-retention", daemon=True).start()

    def run(self) -> int:
        """Delete what is old now; return the number of files and folders."""
        now_seconds = self._clock.now()
        before_seconds = now_seconds - self._keep_seconds
        paths = [
            *self._old_logs(before_seconds),
            *self._old_bundles(before_seconds),
            *_old_files(self._state / "files", before_seconds),
            *_partial_uploads(self._state, now_seconds - _PARTIAL_SECONDS),
        ]
        for path in paths:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
                self._on_deleted(path)
        return len(paths)

    def _attempt(self) -> None:
        try:
            count = self.run()
        except Exception:  # the next pass tries again
            _log.exception("old files could not be deleted")
        else:
            if count:
                _log.info("%d old files and folders were deleted", count)

    def _needing(self, before_seconds: float) -> list[JobRecord]:
        """Return the jobs that have not ended before: their files stay."""
        return [
            job
            for job in self._store.jobs.all()
            if job.ended_seconds is None or job.ended_seconds >= before_seconds
        ]

    def _old_logs(self, before_seconds: float) -> Iterator[Path]:
        """Yield the logs of jobs that ended before, and of jobs that the store does not know."""
        needed = {job.id for job in self._needing(before_seconds)}
        for folder in _entries(self._state / "logs"):
            if folder.name not in needed and _newest_change(folder) < before_seconds:
                yield folder

    def _old_bundles(self, before_seconds: float) -> Iterator[Path]:
        """Yield the bundles that were last used before and that no recent job refers to."""
        needed = {f"{job.spec.bundle}{_SUFFIX}" for job in self._needing(before_seconds)}
        for path in _entries(self._state / "bundles"):
            is_bundle = path.name.endswith(_SUFFIX) and not path.name.startswith(_PARTIAL)
            if is_bundle and path.name not in needed and _changed_seconds(path) < before_seconds:
                yield path


def _old_files(directory: Path, before_seconds: float) -> Iterator[Path]:
    """Yield the files of trials that no driver has fetched, and then empty folders of studies."""
    for folder in _entries(directory):
        for path in _entries(folder):
            if not path.name.startswith(_PARTIAL) and _changed_seconds(path) < before_seconds:
                yield path
        if not any(_entries(folder)) and _changed_seconds(folder) < before_seconds:
            yield folder


def _partial_uploads(state: Path, before_seconds: float) -> Iterator[Path]:
    """Yield uploads that were cut off."""
    for directory in (state / "bundles", *_entries(state / "files")):
        for path in _entries(directory):
            if path.name.startswith(_PARTIAL) and _changed_seconds(path) < before_seconds:
                yield path


def _entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _newest_change(folder: Path) -> float:
    return max(_changed_seconds(path) for path in (folder, *_entries(folder)))


def _changed_seconds(path: Path) -> float:
    """Return the time of the last change, or of the last use of a bundle; inf if it is gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
