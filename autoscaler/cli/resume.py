"""`castor resume`: the next run of a job that has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoscaler.cli.options import JobName, Json
from autoscaler.cli.output import fail_with, print_json


def resume(
    job: JobName,
    changes: Annotated[
        list[str] | None,
        typer.Argument(help="As for castor set: objective=..., max=4.", metavar="[KEY=VALUE...]"),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="A job file: run its command, environment and files."),
    ] = None,
    wait: Annotated[bool, typer.Option(help="Return when the job has ended.")] = False,
    as_json: Json = False,
) -> None:
    """Run a stopped or failed job on from its newest checkpoint, as the next run of its name.

    It has the same files and settings, but for the changes, and what is left of its budget. With
    --file it has the settings of that job file and its files as they are now.
    """
    from autoscaler.cli.changes import parse_changes
    from autoscaler.cli.submission import hand_in_next_run
    from autoscaler.cli.waiting import print_end, wait_for_end
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect
    from autoscaler.wire.messages import JobView, Resumption

    clock, client = SystemClock(), connect()
    if file is not None:
        view = hand_in_next_run(client, job, file, changes or [], clock.now())
    else:
        change = parse_changes(changes or [], client.job(job).bounds, clock.now())
        resumption = Resumption(change.objective, change.instances, change.priority)
        view = client.resume(job, resumption)
    if wait:
        view = wait_for_end(client, view.id, clock)
    if as_json:
        print_json(JobView, view)
    elif wait:
        print_end(view)
    else:
        print(f"{view.id} {view.phase}: it goes on from {view.checkpoint_directory}")
    fail_with(view)
