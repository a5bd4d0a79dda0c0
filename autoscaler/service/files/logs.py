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
    """What jobs wrote, one file an instance; they outlive the instances."""

    def __init__(
        self, directory: Path, clock: Clock, maximum_bytes: int = MAXIMUM_LOG_BYTES
    ) -> None:
        """`maximum_bytes` are kept of each instance's log, and a line that says so."""
        self._directory = directory
        self._clock = clock
        self._maximum_bytes = maximum_bytes
        self._lock = threading.Lock()

    def append(self, job: str, instance: str, offset: int, text: bytes) -> int:
        """Add what an instance wrote from `offset` on; return where it is to go on.

        That is the end of the copy. What was handed in before is not added again; after a gap
        nothing is. Of a log that has reached its limit the rest is passed over.
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
        """Where the copy of an instance's log ends."""
        path = self._at(job, instance)
        return path.stat().st_size if path.exists() else 0

    def read(self, job: str, offsets: Mapping[str, int]) -> tuple[LogPart, ...]:
        """Return what the job's instances wrote from these offsets on, a part of each at most.

        A character whose last bytes are not there yet is left to the next part.

        Args:
            job: the id of the job.
            offsets: by instance, and under `EVERY_INSTANCE` for all others; a negative offset
                counts from the end of the log.
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
    """Return the times of a text that begins at `offset`, by places of its characters."""
    places: list[tuple[int, float]] = []
    characters = done = 0
    for begin, seconds in times:
        characters += len(text[done : begin - offset].decode(errors="replace"))
        done = begin - offset
        places.append((characters, seconds))
    return tuple(places)
