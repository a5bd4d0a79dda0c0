"""Options and arguments shared by several commands."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from typer import Argument, Option

from autoscaler.cli.completion import job_names

Json = Annotated[bool, Option("--json", help="Print JSON, for scripts.")]
JobName = Annotated[
    str, Argument(help="Name or id of a job.", metavar="JOB", autocompletion=job_names)
]
Yes = Annotated[bool, Option("-y", "--yes", help="Do it without asking.")]
Store = Annotated[str | None, Option(help="URL of the database; default: SQLite in --state.")]


class LogFormat(StrEnum):
    """Form of a log's lines."""

    TEXT = "text"
    JSON = "json"
