"""Times at which the parts of a log were received, in a file beside the log.

A record has sixteen bytes: the byte offset of a part, and seconds since the Unix epoch. Both
increase from record to record.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from pathlib import Path
from typing import BinaryIO, Final

_RECORD: Final = struct.Struct(">Qd")
_LEAST_SECONDS: Final = 1.0


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
