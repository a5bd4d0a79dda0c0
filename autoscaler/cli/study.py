"""The words of `castor study`: studies of Optuna's from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

study = Typer(
    help="Run a study of Optuna's from a file, and see how it stands. A study whose file names no "
    "storage lies in NAME.db in the current directory: call all commands there."
)

File = Annotated[Path, Argument(help="A study file; see docs/study-file.md.")]


@study.command()
def run(
    file: File,
    trials: Annotated[
        int | None,
        Option(help="Begin so many more trials, whatever total the file says.", min=1),
    ] = None,
    quiet: Annotated[
        bool, Option("--quiet", "-q", help="No bar, and no line for each trial.")
    ] = False,
) -> None:
    """Run the trials of a study as jobs. Ctrl-C stops the jobs; the same command continues.

    The path of its storage and a default budget are printed at the start.
    """
    from autoscaler.cli.studying import run_file

    run_file(file, trials, quiet)


@study.command()
def plan(
    file: File,
    trials: Annotated[
        int | None, Option(help="So many trials, whatever the file says.", min=1)
    ] = None,
    steps: Annotated[
        int | None,
        Option(
            help="What a trial that nobody prunes reports at last.",
            show_default="the pruner's max_resource, or what earlier trials reported, or 27",
            min=1,
        ),
    ] = None,
    step_seconds: Annotated[
        float | None,
        Option(
            help="What a step takes on one device; 9 trials in 10 within a factor of 2.",
            show_default="as in earlier trials of the study, or 40",
            min=1e-3,
        ),
    ] = None,
    runs: Annotated[
        int | None,
        Option(
            help="How often it is simulated.",
            show_default="10, or as many as begin within 15 s",
            min=1,
        ),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="For scripts.")] = False,
) -> None:
    """Show what a study would cost and when it would end, before a dollar is spent.

    The controller's own plans are simulated a few times, on what can be bought now, with trials
    whose paces and ranks are drawn; beside it the best pool of fixed size for the same draws.
    Exit status 1: no plan keeps to its deadline, or its budget.
    """
    from autoscaler.cli.study_planning import StudyPlanOptions, print_plan

    print_plan(StudyPlanOptions(file, trials, steps, step_seconds, runs), as_json)


@study.command()
def status(
    file: File,
    as_json: Annotated[bool, Option("--json", help="For scripts.")] = False,
    plot: Annotated[
        Path | None, Option(help="Draw what its trials held and when: FILE.png or FILE.svg.")
    ] = None,
) -> None:
    """Print what its storage knows: the best trial, and each of them."""
    from autoscaler.cli.studying import print_status

    if plot is not None:
        from autoscaler.cli.study_history import draw_history

        draw_history(file, plot)
    print_status(file, as_json)


@study.command()
def stop(
    file: File,
    now: Annotated[
        bool, Option("--now", help="End the trials that run, too: the next run goes on with them.")
    ] = False,
) -> None:
    """Let no trial begin any more, wherever the study is run; those that run go on to the end."""
    from autoscaler.cli.studying import stop_file

    stop_file(file, now)


@study.command()
def why(
    file: File,
    trial: Annotated[int, Argument(help="The trial's number, as `castor study status` has it.")],
    number: Annotated[int, Option("-n", help="How many of the last decisions.")] = 20,
    as_json: Annotated[bool, Option("--json", help="For scripts.")] = False,
) -> None:
    """Print what was decided for a trial, and the numbers it was decided by; also afterwards."""
    from autoscaler.cli.studying import explain

    explain(file, trial, number, as_json)


@study.command()
def budget(
    file: File,
    usd: Annotated[str, Argument(help="What the whole study may cost, such as 60 or $0.50.")],
) -> None:
    """Let a study cost so much, until its file says otherwise; it need not run.

    The next run goes by the larger of this budget and the file's.
    """
    from autoscaler.cli.studying import set_budget

    set_budget(file, usd)
