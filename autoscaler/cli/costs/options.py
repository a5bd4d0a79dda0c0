"""Command `castor costs`. It imports `run` when called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from autoscaler.cli.options import Json

Job = Annotated[
    str | None,
    Argument(
        help="Name or id of a job whose receipt to print; default: the costs of all jobs.",
        metavar="JOB",
    ),
]
Focus = Annotated[
    Path | None,
    Option(
        "--focus", metavar="FILE", help="Write the charges of all jobs to this CSV file, in FOCUS."
    ),
]
First = Annotated[
    str | None,
    Option(
        "--first", help="With --focus, the first day (UTC), as 2026-11-01; default: 30 days ago."
    ),
]
Counterfactual = Annotated[
    bool,
    Option("--counterfactual", help="Simulate what other rules would have paid for the job."),
]
Last = Annotated[
    str | None, Option("--last", help="With --focus, the last day, inclusive; default: today.")
]


def costs(
    job: Job = None,
    focus: Focus = None,
    first: First = None,
    last: Last = None,
    counterfactual: Counterfactual = False,
    as_json: Json = False,
) -> None:
    """Print the dollars spent, or the receipt of a job.

    A receipt divides dollars and billed seconds into useful, boot, idle, pause, lost and transfer
    (docs/receipt.md). --focus exports all charges with these parts for FinOps tools.
    """
    from autoscaler.cli.costs import run
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect

    if focus is not None:
        run.export_focus(connect, job, focus, (first, last), SystemClock().now())
        return
    run.require_no_days(first, last)
    if job is None:
        run.require_job(counterfactual)
        run.print_costs(connect(), as_json)
    elif counterfactual:
        run.print_counterfactual(connect(), job, as_json)
    else:
        run.print_receipt(connect(), job, as_json)
