"""Job file for a training script: reading, text, and the file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from autoscaler.cli.new.job_text import job_text
from autoscaler.cli.new.script import read_script
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import Conflict, SpecError
from autoscaler.spec.form_file import read_text
from autoscaler.spec.job_file import load_job

_WANTED: Final = "a training script in Python"


def write_job_file(script: Path, to: Path | None) -> None:
    """Write the job file of a script, check it, and print what to do next.

    Raises:
        SpecError: the script can't be read, or is not Python; or the file can't be written.
        Conflict: the file exists.
    """
    target = script.parent / "job.yaml" if to is None else to
    try:
        facts = read_script(_text_of(script))
    except SyntaxError as error:
        raise SpecError(f"line {error.lineno} is not Python: {error.msg}", str(script)) from None
    except ValueError as error:
        raise SpecError(f"is not Python: {error}", str(script)) from None
    has_requirements = (script.parent / "requirements.txt").is_file()
    text = job_text(script.resolve(), target.absolute().parent, facts, has_requirements)
    try:
        with target.open("x") as file:
            file.write(text)
    except FileExistsError:
        raise Conflict(
            f"{target} exists: name another file with --to, or remove it first"
        ) from None
    except OSError as error:
        raise SpecError(f"{target} can't be written: {error.strerror}", "--to") from None
    load_job(target, SystemClock().now())  # an error of the text names its line
    print(f"{target}: written; read its comments, then: castor plan {target}")


def _text_of(script: Path) -> str:
    """Return the text of a script.

    Raises:
        SpecError: the script can't be read, or is empty.
    """
    text = read_text(script, _WANTED)
    if not text.strip():
        raise SpecError(f"is empty: name {_WANTED}", str(script))
    return text
