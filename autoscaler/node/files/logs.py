"""Log of the job's output: reading it, and sending it to a copy that outlives the instance."""

from __future__ import annotations

import math
import threading
from pathlib import Path

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError
from autoscaler.node.files.log_copies import LogCopy

_TAIL_BYTES = 1 << 18


class LogShipping:
    """Sender of a growing log, which continues at the size of the copy.

    Threads may share this object.
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
        """Delete the log and begin the log of another job; unsent text is lost."""
        with self._lock:
            self._path.unlink(missing_ok=True)
            self._job = job
            self._offset = None

    def ship(self, limit_seconds: float, is_last: bool = False) -> None:
        """Send new text for about `limit_seconds`; the rest waits for the next call.

        Unless it `is_last`, text also waits for the interval that the copy has between parts.

        Raises:
            CastorError: the copy failed; the next call requests its size again.
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
    """Return the size of the log in bytes; 0 if there is no log."""
    return path.stat().st_size if path.exists() else 0


def last_lines(path: Path, offset: int, count: int) -> tuple[str, ...]:
    """Return the last `count` lines printed from the byte `offset` on, from at most 256 KiB."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(max(offset, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ()
    return tuple(text.removesuffix("\n").split("\n")[-count:]) if text else ()


def write_line(path: Path, text: str) -> None:
    """Append a line of Castor's own to the log of the job."""
    with path.open("a") as file:
        file.write(f"castor: {text}\n")
    path.chmod(0o600)
