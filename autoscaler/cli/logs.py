"""`castor logs`: what the instances of a job printed."""

from __future__ import annotations

import json
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from io import IncrementalNewlineDecoder
from typing import Final

from autoscaler.cli.tables import clock_time
from autoscaler.clock import Clock
from autoscaler.domain.errors import Unavailable
from autoscaler.domain.text import printable_lines
from autoscaler.wire.client import Client
from autoscaler.wire.messages import EVERY_INSTANCE, LogPart

_POLL_SECONDS: Final = 1.0
_TAIL_BYTES: Final = 1 << 16
_TAIL_BYTES_A_LINE: Final = 512


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line; `seconds` is when the controller received its beginning, None if not known."""

    instance: str
    seconds: float | None
    text: str


def print_logs(
    client: Client, name: str, clock: Clock, follow: bool, tail: int | None, as_json: bool
) -> None:
    """Print what the instances of a job wrote; with `follow`, until the job has ended.

    A controller may come and go meanwhile. With `tail`, begin with so many lines of each instance.
    """
    job = client.job(name).id
    show = _print_json if as_json else _print_text
    reader, is_first = LogReader(tail), tail is not None
    while True:
        has_ended = not follow
        try:
            has_ended = has_ended or client.job(job).phase.is_final
            lines = _new_lines(client, job, reader, has_ended)
            for line in _last_of_each(lines, tail or 0) if is_first else lines:
                show(line)
            is_first = False
        except Unavailable:
            if not follow:
                raise
            has_ended, reader = False, LogReader(tail) if is_first else reader
        sys.stdout.flush()
        if has_ended:
            return
        clock.sleep(_POLL_SECONDS)


def _new_lines(client: Client, job: str, reader: LogReader, has_ended: bool) -> Iterator[LogLine]:
    while parts := client.logs(job, reader.offsets):
        yield from reader.lines(parts)
    if has_ended:
        yield from reader.rest()


def _last_of_each(lines: Iterable[LogLine], count: int) -> Iterator[LogLine]:
    """Yield the last lines of each instance, in the order of the instances."""
    last: defaultdict[str, deque[LogLine]] = defaultdict(lambda: deque(maxlen=count))
    for line in lines:
        last[line.instance].append(line)
    for _, kept in sorted(last.items()):
        yield from kept


class LogReader:
    """Makes lines of logs that come in parts. `offsets` are where the next parts begin."""

    def __init__(self, tail: int | None = None) -> None:
        self.offsets: dict[str, int] = {}
        if tail is not None:
            self.offsets[EVERY_INSTANCE] = -max(_TAIL_BYTES, tail * _TAIL_BYTES_A_LINE)
        self._begun: dict[str, LogLine] = {}
        # A carriage return ends a line, too, and its line feed may be in the next part.
        self._decoders: defaultdict[str, IncrementalNewlineDecoder] = defaultdict(
            lambda: IncrementalNewlineDecoder(None, translate=True)
        )

    def lines(self, parts: Sequence[LogPart]) -> Iterator[LogLine]:
        """Yield the lines that these parts end."""
        for part in parts:
            is_cut = part.instance not in self.offsets and part.offset > 0
            self.offsets[part.instance] = part.next_offset
            lines = self._lines_of(part)
            if is_cut:
                next(lines, None)
            yield from lines

    def rest(self) -> Iterator[LogLine]:
        """Yield the lines that nothing ends."""
        yield from (line for line in self._begun.values() if line.text)
        self._begun.clear()

    def _lines_of(self, part: LogPart) -> Iterator[LogLine]:
        instance, decoder = part.instance, self._decoders[part.instance]
        for seconds, text in _timed(part):
            begun = self._begun.pop(instance, LogLine(instance, seconds, ""))
            first, *others = decoder.decode(text).split("\n")
            lines = [
                LogLine(instance, begun.seconds if begun.text else seconds, begun.text + first),
                *(LogLine(instance, seconds, other) for other in others),
            ]
            self._begun[instance] = lines.pop()
            yield from lines


def _timed(part: LogPart) -> Iterator[tuple[float | None, str]]:
    """Yield the text of a part in pieces, each with the time at which it was received."""
    if not part.times:
        yield None, part.text
        return
    places = [place for place, _ in part.times]
    for (place, seconds), end in zip(part.times, [*places[1:], len(part.text)], strict=True):
        yield seconds, part.text[place:end]


def _print_text(line: LogLine) -> None:
    time = "" if line.seconds is None else f"{clock_time(line.seconds)} "
    begin = f"{time}{line.instance} | "
    print(begin + printable_lines(line.text).replace("\n", f"\n{begin}"))


def _print_json(line: LogLine) -> None:
    print(json.dumps(asdict(line)))
