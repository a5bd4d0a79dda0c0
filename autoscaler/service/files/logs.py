"""Logs of jobs: one file for each instance."""

from __future__ import annotations

import codecs
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from autoscaler.clock import Clock
from autoscaler.domain.paths import inside
from autoscaler.service.files.log_times import LogTimes
from autoscaler.wire.messages import EVERY_INSTANCE, LogPart

MAXIMUM_LOG_BYTES = 1 << 30

_PART_BYTES = 1 << 18
_CUT = b"\ncastor: of the log of an instance %d bytes are kept: what follows is not here\n"


class Logs:
    """Logs of jobs, one file for each instance; they outlive the instances."""

    def __init__(
        self, directory: Path, clock: Clock, maximum_bytes: int = MAXIMUM_LOG_BYTES
    ) -> None:
        """Keep logs below `directory`, at most `maximum_bytes` of each instance's log."""
        self._directory = directory
        self._clock = clock
        self._maximum_bytes = maximum_bytes
        self._lock = threading.Lock()

    def append(self, job: str, instance: str, offset: int, text: bytes) -> int:
        """Append the part of an instance's log that begins at `offset`; return the next offset.

        The part that was stored before is skipped. After a gap nothing is stored. Beyond the size
        limit the rest is discarded.
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
        """Return the size of the stored log of an instance in bytes."""
        path = self._at(job, instance)
        return path.stat().st_size if path.exists() else 0

    def read(self, job: str, offsets: Mapping[str, int]) -> tuple[LogPart, ...]:
        """Return at most one part of the log of each instance of a job.

        An incomplete character at the end is left to the next part.

        Args:
            job: id of the job.
            offsets: byte offsets by instance, and under `EVERY_INSTANCE` for all others; a
                negative offset counts from the end of the log.
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


def _character_times(
    text: bytes, offset: int, times: Sequence[tuple[int, float]]
) -> tuple[tuple[int, float], ...]:
    """Return the times of a text that begins at byte `offset`, by character position."""
    character_times: list[tuple[int, float]] = []
    characters = decoded_bytes = 0
    for begin, seconds in times:
        characters += len(text[decoded_bytes : begin - offset].decode(errors="replace"))
        decoded_bytes = begin - offset
        character_times.append((characters, seconds))
    return tuple(character_times)
