"""Commands that stay until a job has ended, or all jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import RenderableType

from autoscaler.cli.live import job_detail
from autoscaler.cli.tables import checkpoint_words, counted, job_phase, rest_of_logs
from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, NotFound, Unavailable
from autoscaler.domain.job import JobPhase
from autoscaler.wire.client import Client
from autoscaler.wire.messages import FleetView, JobView

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


def checkpoint_of(client: Client, job: JobView) -> str:
    """Return in words which checkpoint an ended job has left."""
    try:
        newest = client.checkpoint(job.id)
    except NotFound:
        has_saved = job.report is not None and job.report.checkpoint.step is not None
        return checkpoint_words(job) if has_saved else "it has saved no checkpoint"
    except CastorError:
        return checkpoint_words(job)
    return (
        f"its newest checkpoint is {newest.name} in {job.checkpoint_directory}: "
        f"castor resume {job.id} goes on from it, castor fetch {job.id} --checkpoint fetches it"
    )


def details_of(client: Client, name: str, now_seconds: float) -> RenderableType:
    """Return the details of a job, of an ended one with the checkpoint that it has left."""
    job = client.job(name)
    checkpoint = checkpoint_of(client, job) if job.phase.is_final else None
    return job_detail(job, client.fleet().trouble, now_seconds, checkpoint)


def print_end(job: JobView) -> None:
    """Print how a job ended; where it failed, its last lines go to standard error."""
    cause = f": {job.cause}" if job.cause else ""
    print(f"{job.id} {job_phase(job)}{cause}")
    if job.phase is JobPhase.FAILED:
        for line in job.last_lines:
            print(f"  {line}", file=sys.stderr)
        print(rest_of_logs(job), file=sys.stderr)


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
