"""The words of `castor plan`; what it does is in `planning`, imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from autoscaler.cli.options import Json

JobFile = Annotated[Path, Argument(help="A job file; see docs/job-file.md.", metavar="JOB.yaml")]
Offers = Annotated[
    Path | None, Option(help="YAML of what can be bought; else a running controller is asked.")
]
Profiles = Annotated[
    list[Path] | None,
    Option(help="Directory of measured applications; may be repeated.", metavar="<path>"),
]
Application = Annotated[
    str | None, Option(help="Which of them the job is; its program's or its own name by default.")
]
Plot = Annotated[Path | None, Option(help="Draw the frontier there: FILE.png or FILE.svg.")]


def plan(
    job: JobFile,
    offers: Offers = None,
    profiles: Profiles = None,
    application: Application = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Show what a job would cost and when it would end, before a dollar is spent."""
    from autoscaler.cli import planning
    from autoscaler.cli.output import print_json
    from autoscaler.clock import SystemClock
    from autoscaler.domain.errors import SpecError
    from autoscaler.wire.plan_messages import PlanView

    now_seconds = SystemClock().now()
    options = planning.PlanOptions(job, offers, profiles or (), application)
    if plot is not None:
        from autoscaler.cli.pictures.canvas import require_plots
        from autoscaler.cli.pictures.frontier import draw_frontier

        require_plots(plot)
    view = planning.plan_of(options, now_seconds)
    if plot is not None and view.unknown is not None:
        raise SpecError("a plot needs to know how much there is to do: set it", "total_progress")
    if plot is not None:
        draw_frontier(view, plot, now_seconds)
    if as_json:
        print_json(PlanView, view)
    else:
        planning.print_plan(view, now_seconds)
