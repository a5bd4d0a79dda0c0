"""Options of `castor plan`. The command imports `run` when called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from autoscaler.cli.options import Json

JobFile = Annotated[Path, Argument(help="Job file; see docs/job-file.md.", metavar="JOB.yaml")]
Offers = Annotated[
    Path | None, Option(help="Offers file; default: the offers of the running controller.")
]
Profiles = Annotated[
    list[Path] | None,
    Option(help="Directory of application profiles; may be repeated.", metavar="<path>"),
]
Application = Annotated[
    str | None, Option(help="Profile to use; default: the job's program, or its name.")
]
Plot = Annotated[Path | None, Option(help="Draw the time-cost frontier to FILE.png or FILE.svg.")]


def plan(
    job: JobFile,
    offers: Offers = None,
    profiles: Profiles = None,
    application: Application = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Predict cost and duration of a job, before it is submitted."""
    from autoscaler.cli.output import print_json
    from autoscaler.cli.plan import run
    from autoscaler.clock import SystemClock
    from autoscaler.domain.errors import SpecError
    from autoscaler.wire.plan_messages import PlanView

    now_seconds = SystemClock().now()
    options = run.PlanOptions(job, offers, profiles or (), application)
    if plot is not None:
        from autoscaler.cli.pictures.canvas import require_plots
        from autoscaler.cli.pictures.frontier import draw_frontier

        require_plots(plot)
    view = run.plan_of(options, now_seconds)
    if plot is not None and view.unknown is not None:
        raise SpecError(
            "--plot needs the job's length: set total_progress in the job file", "total_progress"
        )
    if plot is not None:
        draw_frontier(view, plot, now_seconds)
    if as_json:
        print_json(PlanView, view)
    else:
        run.print_plan(view, now_seconds)
