"""JSON output of commands, and the exit status of a failed job."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from autoscaler.domain.errors import SpecError

JOB_FAILED: Final = 4


def fail_with(job: Any) -> None:
    """Exit with status 4 if the job has failed; otherwise do nothing."""
    if job.phase == "failed":
        raise SystemExit(JOB_FAILED)


def confirm(question: str, yes: bool, needs_yes: bool = False) -> None:
    """Ask a person at a terminal before something is lost; return if it may be done.

    Elsewhere nobody can answer: with `needs_yes` that is a refusal, else it is done.

    Args:
        question: what will be done, without a question mark.
        yes: the answer of option -y.
        needs_yes: whether a script, too, must say -y.

    Raises:
        SpecError: nobody can answer, and `needs_yes`.
        SystemExit: the answer is no.
    """
    import typer

    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        if needs_yes:
            raise SpecError(f"{question}: add -y, because nobody can be asked here", "--yes")
        return
    if not typer.confirm(f"{question}. Go on?", err=True):
        print("nothing was done", file=sys.stderr)
        raise SystemExit(1)


def print_json(kind: Any, value: Any) -> None:
    """Print a value as JSON, encoded as the API message type `kind`."""
    from autoscaler.wire.codec import encode

    print(json.dumps(json.loads(encode(kind, value)), indent=2))


def write_json(document: object, path: Path) -> None:
    """Write a document to the file of option `--json`.

    Raises:
        SpecError: the file can't be written.
    """
    try:
        path.write_text(json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise SpecError(f"{path} can't be written: {error.strerror}", "--json") from None
