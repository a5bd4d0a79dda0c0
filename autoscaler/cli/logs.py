"""Reader and printer of `castor logs`."""

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
from autoscaler.domain.errors import Unavailable, UnknownInstance
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job_names import exact_name
from autoscaler.domain.text import printable_lines
from autoscaler.wire.client import Client
from autoscaler.wire.messages import EVERY_INSTANCE, JobView, LogPart

_POLL_SECONDS: Final = 1.0
_TAIL_BYTES: Final = 1 << 16
_TAIL_BYTES_A_LINE: Final = 512


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of an instance's log.

    Attributes:
        instance: id of the instance.
        seconds: time at which the controller received the line's beginning; None if unknown.
        text: the line, without its end.
    """

    instance: str
    seconds: float | None
    text: str


def print_logs(
    client: Client,
    name: str,
    clock: Clock,
    follow: bool,
    tail: int | None,
    as_json: bool,
    instance: str | None = None,
) -> None:
    """Print the logs of the instances of a job.

    Args:
        client: client of the controller.
        name: name or id of the job.
        clock: clock to sleep with between polls.
        follow: print new lines until the job has ended, even if the controller restarts.
        tail: number of last lines of each instance to start with; None: all lines.
        as_json: print a JSON object for each line.
        instance: id of the only instance to print; None: all.

    Raises:
        Unavailable: no controller answers, and `follow` is False.
        UnknownInstance: the job has no log of `instance`, and `follow` is False or the job ended.
    """
    job_id = client.job(name).id
    job = exact_name(job_id)
    show = _print_json if as_json else _print_text
    reader, is_first = LogReader(tail), tail is not None
    while True:
        has_ended = not follow
        try:
            has_ended = has_ended or client.job(job).phase.is_final
            lines = _new_lines(client, job, reader, has_ended)
            for line in _last_of_each(lines, tail or 0) if is_first else lines:
                if instance in (None, line.instance):
                    show(line)
            is_first = False
        except Unavailable:
            if not follow:
                raise
            has_ended, reader = False, LogReader(tail) if is_first else reader
        sys.stdout.flush()
        if has_ended:
            _require_instance(instance, reader)
            if not reader.offsets.keys() - {EVERY_INSTANCE}:
                print(f"{job_id}: {_absence(client.job(job))}", file=sys.stderr)
            return
        clock.sleep(_POLL_SECONDS)


def _new_lines(client: Client, job: str, reader: LogReader, has_ended: bool) -> Iterator[LogLine]:
    while parts := client.logs(job, reader.offsets):
        yield from reader.lines(parts)
    if has_ended:
        yield from reader.rest()


def _absence(job: JobView) -> str:
    """Return why a job has no log."""
    if job.phase.is_final:
        return "it has ended, and its script printed nothing"
    if any(instance.phase is InstancePhase.TRAINING for instance in job.instances):
        return "its script has printed nothing yet"
    return "no log yet, since its script has not started"


def _require_instance(instance: str | None, reader: LogReader) -> None:
    known = sorted(reader.offsets.keys() - {EVERY_INSTANCE})
    if instance is not None and instance not in known:
        raise UnknownInstance(
            f'no log of instance "{instance}": the job has logs of {", ".join(known) or "none"}'
        )


def _last_of_each(lines: Iterable[LogLine], count: int) -> Iterator[LogLine]:
    """Yield the last `count` lines of each instance, sorted by instance id."""
    last: defaultdict[str, deque[LogLine]] = defaultdict(lambda: deque(maxlen=count))
    for line in lines:
        last[line.instance].append(line)
    for _, last_lines in sorted(last.items()):
        yield from last_lines


class LogReader:
    """Splitter of log parts into lines, across part boundaries.

    Attributes:
        offsets: offset at which the next part of each instance begins.
    """

    def __init__(self, tail: int | None = None) -> None:
        self.offsets: dict[str, int] = {}
        if tail is not None:
            self.offsets[EVERY_INSTANCE] = -max(_TAIL_BYTES, tail * _TAIL_BYTES_A_LINE)
        self._unfinished: dict[str, LogLine] = {}
        # A carriage return ends a line, too. Its line feed may be in the next part.
        self._decoders: defaultdict[str, IncrementalNewlineDecoder] = defaultdict(
            lambda: IncrementalNewlineDecoder(None, translate=True)
        )

    def lines(self, parts: Sequence[LogPart]) -> Iterator[LogLine]:
        """Yield the lines that these parts complete, and update `offsets`."""
        for part in parts:
            is_cut = part.instance not in self.offsets and part.offset > 0
            self.offsets[part.instance] = part.next_offset
            lines = self._lines_of(part)
            if is_cut:
                next(lines, None)
            yield from lines

    def rest(self) -> Iterator[LogLine]:
        """Yield and forget the last line of each instance that has no line end."""
        yield from (line for line in self._unfinished.values() if line.text)
        self._unfinished.clear()

    def _lines_of(self, part: LogPart) -> Iterator[LogLine]:
        instance, decoder = part.instance, self._decoders[part.instance]
        for seconds, text in _timed_pieces(part):
            start = self._unfinished.pop(instance, LogLine(instance, seconds, ""))
            first, *others = decoder.decode(text).split("\n")
            lines = [
                LogLine(instance, start.seconds if start.text else seconds, start.text + first),
                *(LogLine(instance, seconds, other) for other in others),
            ]
            self._unfinished[instance] = lines.pop()
            yield from lines


def _timed_pieces(part: LogPart) -> Iterator[tuple[float | None, str]]:
    """Yield pieces of a part's text, each with its time of receipt; None if unknown."""
    if not part.times:
        yield None, part.text
        return
    starts = [start for start, _ in part.times]
    for (start, seconds), end in zip(part.times, [*starts[1:], len(part.text)], strict=True):
        yield seconds, part.text[start:end]


def _print_text(line: LogLine) -> None:
    time = "" if line.seconds is None else f"{clock_time(line.seconds)} "
    prefix = f"{time}{line.instance} | "
    print(prefix + printable_lines(line.text).replace("\n", f"\n{prefix}"))


def _print_json(line: LogLine) -> None:
    print(json.dumps(asdict(line)))
