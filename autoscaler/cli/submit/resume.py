"""Command `castor resume`: the next run of an ended job."""

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
        typer.Argument(
            help="Changes as of castor set: objective=..., max=4.", metavar="[KEY=VALUE...]"
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Job file; run its command, environment, settings and files."),
    ] = None,
    wait: Annotated[bool, typer.Option(help="Return when the job has ended.")] = False,
    as_json: Json = False,
) -> None:
    """Resume an ended job from its newest checkpoint.

    The job must have been stopped or have failed. The new run has the same name, files and
    settings, except for the changes, and the rest of the budget. With --file, the new run has the
    settings and the current files of that job file.
    """
    from autoscaler.cli.submit.changes import parse_changes
    from autoscaler.cli.submit.submission import hand_in_next_run
    from autoscaler.cli.submit.waiting import print_end, wait_for_end
    from autoscaler.clock import SystemClock
    from autoscaler.spec.job_file import load_job
    from autoscaler.wire.connection import connect
    from autoscaler.wire.messages import JobView, Resumption

    clock = SystemClock()
    job_file = None if file is None else load_job(file, clock.now())
    client = connect()
    if job_file is not None:
        view = hand_in_next_run(client, job, job_file, changes or [], clock.now())
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
        print(f"{view.id} {view.phase}: continues from {view.checkpoint_directory}")
    fail_with(view)
