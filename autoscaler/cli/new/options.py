"""Command `castor new`. It imports what it runs when called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def new(
    script: Annotated[Path, typer.Argument(help="Training script in Python.")],
    to: Annotated[
        Path | None,
        typer.Option("--to", help="File to write; default: job.yaml beside the script."),
    ] = None,
) -> None:
    """Write a commented job file for a training script.

    The script is read and never run. A file that exists is not replaced.
    """
    from autoscaler.cli.new.run import write_job_file

    write_job_file(script, to)
