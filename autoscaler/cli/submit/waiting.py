"""Waiting for the end of a job, or of all jobs and instances."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import RenderableType

from autoscaler.cli.live import job_detail
from autoscaler.cli.tables import checkpoint_words, counted, job_phase, rest_of_logs
from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, NotFound, Unavailable
from autoscaler.domain.job import JobPhase
from autoscaler.domain.job_names import exact_name
from autoscaler.wire.client import Client
from autoscaler.wire.messages import FleetView, JobView

_POLL_SECONDS = 1.0
_EMPTY_LISTINGS = 2  # consecutive, to catch a launch that was in progress at the first


def wait_for_end(client: Client, job_id: str, clock: Clock) -> JobView:
    """Wait until a job has ended and holds no instance, and return it.

    The controller may be unavailable meanwhile, and a new job may take the name after its end.
    """
    name = exact_name(job_id)
    while True:
        try:
            job = client.job(name)
        except Unavailable:
            job = None
        if job is not None and job.phase.is_final and not job.instances:
            return job
        clock.sleep(_POLL_SECONDS)


def checkpoint_of(client: Client, job: JobView) -> str:
    """Return words for the newest checkpoint of a job, and the commands that use it."""
    try:
        newest = client.checkpoint(job.id)
    except NotFound:
        has_saved = job.report is not None and job.report.checkpoint.step is not None
        return checkpoint_words(job) if has_saved else "no checkpoint was saved"
    except CastorError:
        return checkpoint_words(job)
    may_resume = job.phase.is_final and job.phase is not JobPhase.FINISHED
    resume = f"castor resume {job.id} continues from it, " if may_resume else ""
    return (
        f"the newest checkpoint is {newest.name} in {job.checkpoint_directory}: "
        f"{resume}castor fetch {job.id} --checkpoint fetches it"
    )


def details_of(client: Client, name: str, now_seconds: float) -> RenderableType:
    """Return the detailed view of a job; for an ended job, with its newest checkpoint."""
    job = client.job(name)
    checkpoint = checkpoint_of(client, job) if job.phase.is_final or job.waits else None
    return job_detail(job, client.fleet().trouble, now_seconds, checkpoint)


def print_end(job: JobView) -> None:
    """Print phase and cause of an ended job, and a failed job's last lines to standard error."""
    cause = f": {job.cause}" if job.cause else ""
    print(f"{job.id} {job_phase(job)}{cause}")
    if job.phase is JobPhase.FAILED:
        for line in job.last_lines:
            print(f"  {line}", file=sys.stderr)
        print(rest_of_logs(job), file=sys.stderr)


def drain(client: Client, say: Callable[[str], None], clock: Clock) -> None:
    """Stop all jobs repeatedly until no instance of this deployment is left in any cloud.

    Two consecutive listings must be empty. `say` is called with words for the instances that are
    left, whenever the words change. The controller may be unavailable after the first call.

    Raises:
        Unavailable: no controller answers the first call.
    """
    client.drain()
    empty_listings, last_words = 0, ""
    while empty_listings < _EMPTY_LISTINGS:
        try:
            client.drain()
            left = _left(_next_fleet(client, clock))
        except Unavailable:
            left = "the controller does not answer"
            clock.sleep(_POLL_SECONDS)
        empty_listings = 0 if left else empty_listings + 1
        if left and left != last_words:
            say(left)
        last_words = left


def _next_fleet(client: Client, clock: Clock) -> FleetView:
    """Wait for the controller's next tick, and return the fleet after it."""
    start_seconds = clock.now()
    while True:
        fleet = client.fleet()
        if (fleet.ticked_seconds or 0.0) > start_seconds:
            return fleet
        clock.sleep(_POLL_SECONDS)


def _left(fleet: FleetView) -> str:
    """Return words for the instances that are left; empty if there are none."""
    parts = []
    if fleet.instances:
        parts.append(counted(len(fleet.instances), "instance"))
    if fleet.strays:
        parts.append(f"{', '.join(sorted(fleet.strays))}, which ran without an order")
    if fleet.silent:
        parts.append(f"{', '.join(sorted(fleet.silent))} does not list instances: {fleet.trouble}")
    return "; ".join(parts)
