"""Commands that stay: until a job has ended, or with its log."""

from __future__ import annotations

import sys
from collections import defaultdict
from io import IncrementalNewlineDecoder

from autoscaler.clock import Clock
from autoscaler.domain.errors import Unavailable
from autoscaler.wire.client import Client
from autoscaler.wire.messages import JobView, LogPart

_POLL_SECONDS = 1.0


def wait_for_end(client: Client, name: str, clock: Clock) -> JobView:
    """The job once it has ended and holds nothing any more; a controller may come and go."""
    while True:
        try:
            job = client.job(name)
        except Unavailable:
            job = None
        if job is not None and job.phase.is_final and not job.instances:
            return job
        clock.sleep(_POLL_SECONDS)


def follow_logs(client: Client, name: str, follow: bool, clock: Clock) -> None:
    """Print what the job's instances wrote; with `follow`, until it has ended.

    A controller may come and go meanwhile.
    """
    job = client.job(name).id
    lines = LogLines()
    while True:
        try:
            has_ended = not follow or client.job(job).phase.is_final
            _print_new(client, job, lines)
        except Unavailable:
            if not follow:
                raise
            has_ended = False
        sys.stdout.flush()
        if has_ended:
            break
        clock.sleep(_POLL_SECONDS)
    lines.print_rest()


def _print_new(client: Client, job: str, lines: LogLines) -> None:
    while parts := client.logs(job, lines.offsets):
        for part in parts:
            lines.print_part(part)


class LogLines:
    """Prints logs that come in parts line by line, each behind the name of its instance.

    `offsets` are where the next parts begin.
    """

    def __init__(self) -> None:
        self.offsets: dict[str, int] = {}
        self._begun: defaultdict[str, str] = defaultdict(str)
        # A carriage return ends a line, too, and its line feed may be in the next part.
        self._decoders: defaultdict[str, IncrementalNewlineDecoder] = defaultdict(
            lambda: IncrementalNewlineDecoder(None, translate=True)
        )

    def print_part(self, part: LogPart) -> None:
        """Print the lines that this part ends."""
        self.offsets[part.instance] = part.next_offset
        text = self._begun[part.instance] + self._decoders[part.instance].decode(part.text)
        *ended, self._begun[part.instance] = text.split("\n")
        for line in ended:
            print(f"{part.instance} | {line}")

    def print_rest(self) -> None:
        """Print the lines that nothing ends."""
        for instance, line in self._begun.items():
            if line:
                print(f"{instance} | {line}")
