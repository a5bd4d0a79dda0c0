"""Commands `castor curve`, `history` and `what-if`. They import their tables when called."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from autoscaler.cli.options import JobName, Json

Value = Annotated[
    str | None,
    Option(
        "--value-of-time",
        help="Value of an hour of waiting in US dollars, in place of preference and deadline.",
    ),
]
Deadline = Annotated[str | None, Option(help="Deadline, as 4h or 2026-12-01T08:00Z.")]
Budget = Annotated[str | None, Option(help="Budget of the whole job in US dollars, as 20.")]
Most = Annotated[int | None, Option("--max", help="Most instances.", min=1)]

Points = Annotated[int, Option(help="Number of rows.", min=2, max=2000)]
Since = Annotated[str | None, Option(help="Age of the first row, as 2h; default: submission.")]


def curve(job: JobName, as_json: Json = False) -> None:
    """Print the predicted goodput of a job by offer and size.

    Goodput is in useful examples a second. The last column marks what the job holds and the
    candidate that the planner weighs. A size whose million examples cost less than those of the
    held size is worth its price.
    """
    from autoscaler.cli.foresight.tables import print_curve
    from autoscaler.cli.output import print_json
    from autoscaler.wire.connection import connect
    from autoscaler.wire.outlook_messages import CurveView

    view = connect().curve(job)
    if as_json:
        print_json(CurveView, view)
    else:
        print_curve(view)


def history(
    job: JobName,
    points: Points = 20,
    since: Since = None,
    as_json: Json = False,
) -> None:
    """Print how size, goodput, loss and cost of a job changed.

    Each row is a time: instances, useful examples a second, batch and noise scale in examples,
    learning rate, loss, $/h, and dollars spent.
    """
    from autoscaler.cli.foresight.tables import first_moment, print_history
    from autoscaler.cli.output import print_json
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect
    from autoscaler.wire.outlook_messages import HistoryView

    first_seconds = first_moment(since, SystemClock().now())
    view = connect().history(job, first_seconds, points)
    if as_json:
        print_json(HistoryView, view)
    else:
        print_history(view)


def what_if(
    job: JobName,
    value_of_time: Value = None,
    deadline: Deadline = None,
    budget: Budget = None,
    most: Most = None,
    as_json: Json = False,
) -> None:
    """Predict finish and cost of a job under another objective.

    Nothing is changed. Without options the prediction is for the job's own objective. `castor set`
    changes it.
    """
    from autoscaler.cli.foresight.tables import parse_hypothesis, print_what_if
    from autoscaler.cli.output import print_json
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect
    from autoscaler.wire.outlook_messages import Hypothesis, WhatIfView

    now_seconds = SystemClock().now()
    assumed = parse_hypothesis(value_of_time, deadline, budget, most, now_seconds)
    view = connect().assume(job, assumed)
    if as_json:
        print_json(WhatIfView, view)
    else:
        print_what_if(view, is_asked=assumed != Hypothesis())
