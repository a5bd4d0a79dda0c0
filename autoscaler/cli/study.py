"""The words of `castor study`: studies of Optuna's from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

study = Typer(help="Run a study of Optuna's from a file, and see how it stands.")

File = Annotated[Path, Argument(help="A study file; see docs/hpo.md.")]


@study.command()
def run(
    file: File,
    trials: Annotated[
        int | None, Option(help="Begin so many trials, whatever the file says.", min=1)
    ] = None,
) -> None:
    """Run its trials as jobs; the same command goes on where it was. Ctrl-C stops the jobs."""
    from autoscaler.cli.studying import run_file

    run_file(file, trials)


@study.command()
def status(
    file: File, as_json: Annotated[bool, Option("--json", help="For scripts.")] = False
) -> None:
    """Print what its storage knows: the best trial, and each of them."""
    from autoscaler.cli.studying import print_status

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
    """Let a study that runs cost so much, until its file says otherwise."""
    from autoscaler.cli.studying import set_budget

    set_budget(file, usd)
