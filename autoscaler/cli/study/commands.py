"""Commands `castor study`: Optuna studies from a study file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

study = Typer(
    help="Run and inspect Optuna studies. A study whose file names no storage is stored as "
    "NAME.db in the current directory: run all commands on it there."
)

File = Annotated[Path, Argument(help="Study file; see docs/study-file.md.")]


FileOrName = Annotated[
    Path, Argument(help="Study file, or the name of a study in `castor study list`.")
]


@study.command()
def run(
    file: File,
    trials: Annotated[
        int | None,
        Option(help="Number of additional trials; overrides the total in the file.", min=1),
    ] = None,
    quiet: Annotated[
        bool, Option("--quiet", "-q", help="Print no progress bar, and no line for each trial.")
    ] = False,
) -> None:
    """Run the trials of a study as jobs.

    Ctrl-C stops the jobs; the same command continues the study. The path of the storage and a
    default budget are printed at the start.
    """
    from autoscaler.cli.study.run import run_file

    run_file(file, trials, quiet)


@study.command()
def plan(
    file: File,
    trials: Annotated[
        int | None, Option(help="Number of trials; overrides the file.", min=1)
    ] = None,
    steps: Annotated[
        int | None,
        Option(
            help="Last step that a trial reports if it is not pruned.",
            show_default="the pruner's max_resource, or as in earlier trials, or 27",
            min=1,
        ),
    ] = None,
    step_seconds: Annotated[
        float | None,
        Option(
            help="Seconds of a step on one device. 9 in 10 simulated trials are within a factor "
            "of 2 of it.",
            show_default="as in earlier trials of the study, or 40",
            min=1e-3,
            max=1e6,
        ),
    ] = None,
    runs: Annotated[
        int | None,
        Option(
            help="Number of simulated runs.",
            show_default="10, or as many as start within 15 s",
            min=1,
        ),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Predict cost and duration of a study, before it runs.

    The controller's planning is simulated several times on current offers, with randomly drawn
    speeds and ranks of trials. The best pool of fixed size is simulated with the same draws, for
    comparison. Exit status 1: no plan keeps the deadline or the budget.
    """
    from autoscaler.cli.study.plan import StudyPlanOptions, print_plan

    print_plan(StudyPlanOptions(file, trials, steps, step_seconds, runs), as_json)


@study.command("list")
def list_studies(
    as_json: Annotated[bool, Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """List all studies: trials, best value and spending."""
    from autoscaler.cli.live import print_whole
    from autoscaler.cli.output import print_json
    from autoscaler.cli.study.tables import studies_table
    from autoscaler.wire.connection import connect
    from autoscaler.wire.study_messages import StudySummary

    summaries = connect().studies()
    if as_json:
        print_json(tuple[StudySummary, ...], summaries)
    elif summaries:
        print_whole(studies_table(summaries))
    else:
        print("no study has run here: castor study run STUDY.yaml starts one")


@study.command()
def status(
    file: File,
    as_json: Annotated[bool, Option("--json", help="Print JSON, for scripts.")] = False,
    plot: Annotated[
        Path | None, Option(help="Draw the trials' instances over time to FILE.png or FILE.svg.")
    ] = None,
) -> None:
    """Print the best trial, spending, and a table of all trials."""
    from autoscaler.cli.study.run import print_status

    if plot is not None:
        from autoscaler.cli.study.history import draw_history

        draw_history(file, plot)
    print_status(file, as_json)


@study.command()
def stop(
    file: FileOrName,
    now: Annotated[
        bool, Option("--now", help="Stop running trials, too. The next run continues them.")
    ] = False,
) -> None:
    """Stop a study: start no more trials.

    Running trials continue to their ends. The study may run on any machine.
    """
    from autoscaler.cli.study.run import stop_file

    stop_file(file, now)


@study.command()
def why(
    file: File,
    trial: Annotated[
        int, Argument(min=0, help="Number of the trial, as in `castor study status`.")
    ],
    number: Annotated[
        int, Option("-n", min=1, help="Number of decisions to print, the latest.")
    ] = 20,
    as_json: Annotated[bool, Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Print the decisions made for a trial, with their reasons."""
    from autoscaler.cli.study.run import explain

    explain(file, trial, number, as_json)


@study.command()
def budget(
    file: FileOrName,
    usd: Annotated[str, Argument(help="Budget of the whole study in US dollars, as 60 or $0.50.")],
) -> None:
    """Set the budget of a study, running or not.

    The next run uses the larger of this budget and the budget in the study file.
    """
    from autoscaler.cli.study.run import set_budget

    set_budget(file, usd)
