"""What the job printed: read where it lies, and handed in, so that it outlives the instance."""

from __future__ import annotations

import math
import threading
from pathlib import Path

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError
from autoscaler.node.log_copies import LogCopy

_TAIL_BYTES = 1 << 18


class LogShipping:
    """Hands in a log that grows. The copy is asked how far it goes.

    Safe to share between threads.
    """

    def __init__(self, path: Path, copy: LogCopy, clock: Clock, job: str) -> None:
        self._path = path
        self._copy = copy
        self._clock = clock
        self._job = job
        self._offset: int | None = None
        self._next_seconds = -math.inf
        self._lock = threading.Lock()

    def begin(self, job: str) -> None:
        """Let the log be a new one, of another job: what was not handed in yet is dropped."""
        with self._lock:
            self._path.unlink(missing_ok=True)
            self._job = job
            self._offset = None

    def ship(self, limit_seconds: float, is_last: bool = False) -> None:
        """Hand in what is new, for so long at most; then the rest waits for the next call.

        What the copy would rather have together waits, too, unless it `is_last`.

        Raises:
            CastorError: as the copy; how far it goes is asked again then.
        """
        began_seconds = self._clock.monotonic()
        if began_seconds < self._next_seconds and not is_last:
            return
        with self._lock:
            while self._offset is None or self._offset < log_size(self._path):
                self._next_seconds = began_seconds + self._copy.interval_seconds
                offset = self._offset or 0
                chunk = b"" if self._offset is None else self._read(offset)
                try:
                    self._offset = self._copy.append_log(offset, chunk, self._job)
                except CastorError:
                    self._offset = None
                    raise
                if self._clock.monotonic() >= began_seconds + limit_seconds:
                    return

    def _read(self, offset: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read(self._copy.part_bytes)


def log_size(path: Path) -> int:
    """How many bytes were printed; 0 where there is no log."""
    return path.stat().st_size if path.exists() else 0


def last_lines(path: Path, offset: int, count: int) -> tuple[str, ...]:
    """The last `count` lines that were printed from `offset` on; of very long ones the ends."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(max(offset, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ()
    return tuple(text.removesuffix("\n").split("\n")[-count:]) if text else ()


def write_line(path: Path, text: str) -> None:
    """Add a line of Castor's own to what the job printed."""
    with path.open("a") as file:
        file.write(f"castor: {text}\n")
    path.chmod(0o600)
