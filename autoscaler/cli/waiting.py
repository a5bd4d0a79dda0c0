"""Commands that stay: until a job has ended, or all of them, or with a log."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from io import IncrementalNewlineDecoder

from autoscaler.cli.tables import counted
from autoscaler.clock import Clock
from autoscaler.domain.errors import Unavailable
from autoscaler.wire.client import Client
from autoscaler.wire.messages import FleetView, JobView, LogPart

_POLL_SECONDS = 1.0
_TIMES_EMPTY = 2


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


def drain(client: Client, say: Callable[[str], None], clock: Clock) -> None:
    """Stop all jobs, again and again, until nothing of this deployment is left in any cloud.

    Ask twice: what was on its way when the jobs were stopped is in the second list. `say` is told
    what is left whenever that changes. A controller may come and go, but for the first call.

    Raises:
        Unavailable: there is none.
    """
    client.drain()
    times_empty, told = 0, ""
    while times_empty < _TIMES_EMPTY:
        try:
            client.drain()
            left = _left(_next_fleet(client, clock))
        except Unavailable:
            left = "the controller is away"
            clock.sleep(_POLL_SECONDS)
        times_empty = 0 if left else times_empty + 1
        if left and left != told:
            say(left)
        told = left


def _next_fleet(client: Client, clock: Clock) -> FleetView:
    """The fleet after another turn of the controller's loop."""
    asked_seconds = clock.now()
    while True:
        fleet = client.fleet()
        if (fleet.ticked_seconds or 0.0) > asked_seconds:
            return fleet
        clock.sleep(_POLL_SECONDS)


def _left(fleet: FleetView) -> str:
    """What is left, in words; nothing if nothing is."""
    parts = []
    if fleet.instances:
        parts.append(counted(len(fleet.instances), "instance"))
    if fleet.strays:
        parts.append(f"{', '.join(sorted(fleet.strays))}, which nobody ordered")
    if fleet.silent:
        parts.append(f"{', '.join(sorted(fleet.silent))} does not say what runs: {fleet.trouble}")
    return "; ".join(parts)


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
