"""Logs of jobs: one file for each instance."""

from __future__ import annotations

import codecs
import os
import struct
import threading
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from autoscaler.clock import Clock
from autoscaler.domain.paths import inside
from autoscaler.service.files.free_space import DEFAULT_SPACE, FreeSpace
from autoscaler.service.files.job_log_limit import JobLogLimit, JobLogSizes, is_cut
from autoscaler.wire.messages import EVERY_INSTANCE, LogPart

MAXIMUM_LOG_BYTES = 1 << 30

_PART_BYTES = 1 << 18
_CUT = b"\ncastor: of the log of an instance %d bytes are kept: what follows is not here\n"
_RECORD: Final = struct.Struct(">Qd")
_LEAST_SECONDS: Final = 1.0


class Logs:
    """Logs of jobs, one file for each instance; they outlive the instances."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        maximum_bytes: int = MAXIMUM_LOG_BYTES,
        space: FreeSpace = DEFAULT_SPACE,
        limit: JobLogLimit | None = None,
    ) -> None:
        """Keep logs below `directory`.

        At most `maximum_bytes` of each instance's log are kept, and of each job what `limit` says.
        """
        self._sizes = JobLogSizes(limit)
        self._space = space
        self._directory = directory
        self._clock = clock
        self._maximum_bytes = maximum_bytes
        self._lock = threading.Lock()

    def append(self, job: str, instance: str, offset: int, text: bytes) -> int:
        """Append the part of an instance's log that begins at `offset`; return the next offset.

        The part that was stored before is skipped. After a gap nothing is stored. Beyond the size
        limits, of the instance and of the job, the rest is discarded.

        Raises:
            Unavailable: the disk is nearly full; the instance keeps its log meanwhile.
        """
        path = self._at(job, instance)
        with self._lock:
            path.parent.mkdir(parents=True, exist_ok=True)
            if text:
                self._space.require(path.parent, f"the log of {instance}")
            with path.open("ab") as file:
                end = file.tell()
            if end >= self._maximum_bytes or is_cut(path):
                return max(offset + len(text), end)
            if offset <= end < offset + len(text):
                new_text = text[end - offset :]
                if not self._sizes.make_room(path, len(new_text)):
                    self._sizes.cut(path)
                    return max(offset + len(text), self.end(job, instance))
                self._write(path, end, new_text)
            return self.end(job, instance)

    def _write(self, path: Path, end: int, text: bytes) -> None:
        LogTimes(path).add(end, self._clock.now())
        with path.open("ab") as file:
            file.write(text)
            if file.tell() >= self._maximum_bytes:
                file.write(_CUT % self._maximum_bytes)
            self._sizes.add(path.parent, file.tell() - end)

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


class LogTimes:
    """Times of one log; safe to read while one thread adds."""

    def __init__(self, log: Path) -> None:
        self._path = log.with_suffix(".times")

    def add(self, offset: int, received_seconds: float) -> None:
        """Record the time of the part that begins at `offset`, at most once a second."""
        with self._path.open("a+b") as file:
            count = _count(file)
            if count and received_seconds < _record(file, count - 1)[1] + _LEAST_SECONDS:
                return
            file.write(_RECORD.pack(offset, received_seconds))

    def between(self, begin: int, end: int) -> list[tuple[int, float]]:
        """Return (offset, seconds) at which each time begins to apply, within [begin, end).

        Empty if no time is known. Text before the first record has that record's time.
        """
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            places = range(_count(file))
            if not places:
                return []
            after = bisect_right(places, begin, key=lambda place: _record(file, place)[0])
            times = [(begin, _record(file, max(after - 1, 0))[1])]
            for place in places[max(after, 1) :]:
                offset, seconds = _record(file, place)
                if offset >= end:
                    break
                times.append((offset, seconds))
            return times


def _count(file: BinaryIO) -> int:
    """Return the number of complete records."""
    return file.seek(0, os.SEEK_END) // _RECORD.size


def _record(file: BinaryIO, place: int) -> tuple[int, float]:
    file.seek(place * _RECORD.size)
    offset, seconds = _RECORD.unpack(file.read(_RECORD.size))
    return offset, seconds
