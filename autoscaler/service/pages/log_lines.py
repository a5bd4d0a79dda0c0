"""Last lines of a job's log, of all instances by time, for pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from autoscaler.domain.text import printable
from autoscaler.service.files.logs import Logs
from autoscaler.wire.messages import EVERY_INSTANCE, LogPart

_TAIL_BYTES: Final = 32_768
_LONGEST: Final = 2_000
# Prefix that an instance adds to each line where several ranks run.
_RANK: Final = re.compile(r"\[rank (\d{1,6})\] ?")


@dataclass(frozen=True, slots=True)
class LogLineView:
    """Line of an instance's log, with its rank and the time of its receipt; None if unknown."""

    instance: str
    at_seconds: float | None
    rank: int | None
    text: str


def last_lines(logs: Logs, job: str, count: int, instance: str = "") -> tuple[LogLineView, ...]:
    """Return the last lines of a job's log by time; `instance` empty: of all instances."""
    parts = logs.read(job, {EVERY_INSTANCE: -_TAIL_BYTES})
    lines = [
        line
        for part in parts
        if instance in ("", part.instance)
        for line in _lines_of(part)
        if line.text.strip()
    ]
    lines.sort(key=lambda line: line.at_seconds or 0.0)
    return tuple(lines[-count:])


def _lines_of(part: LogPart) -> Iterator[LogLineView]:
    """Yield the lines of a part, without a first one that is cut off."""
    starts = [*part.times, (len(part.text), 0.0)]
    pieces: list[tuple[float | None, str]] = [
        (seconds, part.text[start:end]) for (start, seconds), (end, _) in pairwise(starts)
    ]
    is_first = part.offset > 0
    for seconds, piece in pieces or [(None, part.text)]:
        for text in piece.splitlines():
            if not is_first:
                yield _line_of(part.instance, seconds, text)
            is_first = False


def _line_of(instance: str, at_seconds: float | None, text: str) -> LogLineView:
    prefix = _RANK.match(text)
    rank = None if prefix is None else int(prefix[1])
    shown = printable(text[0 if prefix is None else prefix.end() :][:_LONGEST])
    return LogLineView(instance, at_seconds, rank, shown)
