"""Commands that stay: until a job has ended, or with its log."""

from __future__ import annotations

import sys

from autoscaler.clock import Clock
from autoscaler.domain.errors import Unavailable
from autoscaler.wire.client import Client
from autoscaler.wire.messages import JobView

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

    Lines of several instances are told apart by a prefix.
    """
    offsets: dict[str, int] = {}
    while True:
        has_ended = follow and client.job(name).phase.is_final
        parts = client.logs(name, offsets)
        while parts:
            for part in parts:
                offsets[part.instance] = part.next_offset
                for line in part.text.splitlines():
                    print(f"{part.instance} | {line}")
            parts = client.logs(name, offsets)
        sys.stdout.flush()
        if not follow or has_ended:
            return
        clock.sleep(_POLL_SECONDS)
