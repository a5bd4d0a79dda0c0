"""Job file for a training script: reading, text, and the file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from autoscaler.cli.new.job_text import job_text
from autoscaler.cli.new.script import read_script
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import Conflict, SpecError
from autoscaler.spec.form_file import read_text
from autoscaler.spec.job_file import parse_job

_WANTED: Final = "a training script in Python"


def write_job_file(script: Path, to: Path | None) -> None:
    """Write the job file of a script, check it, and print what to do next.

    Nothing is written unless the whole file can be.

    Raises:
        SpecError: the script can't be read, is not Python, or has options that no job file can
            have; or the file can't be written.
        Conflict: the file exists.
    """
    target = script.parent / "job.yaml" if to is None else to
    try:
        facts = read_script(_text_of(script))
    except SyntaxError as error:
        line = "it" if error.lineno is None else f"line {error.lineno}"
        raise SpecError(f"{line} is not Python: {error.msg}", str(script)) from None
    except ValueError as error:
        raise SpecError(f"is not Python: {error}", str(script)) from None
    if not target.absolute().parent.is_dir():
        raise SpecError(f"{target} can't be written: its folder does not exist", "--to")
    has_requirements = (script.parent / "requirements.txt").is_file()
    text = job_text(script.resolve(), target.absolute().parent, facts, has_requirements)
    try:
        parse_job(text, target, SystemClock().now())
    except SpecError as error:
        raise SpecError(
            f"no job file can be made of it, write one by hand: {error}", str(script)
        ) from None
    _write_new(target, text)
    print(f"{target}: written; read its comments, then: castor plan {target}")


def _write_new(target: Path, text: str) -> None:
    """Write a new file, or none if its disk is full.

    Raises:
        SpecError: the file can't be written.
        Conflict: the file exists.
    """
    try:
        with target.open("x", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                target.unlink()
                raise
    except FileExistsError:
        raise Conflict(
            f"{target} exists: name another file with --to, or remove it first"
        ) from None
    except OSError as error:
        raise SpecError(f"{target} can't be written: {error.strerror}", "--to") from None


def _text_of(script: Path) -> str:
    """Return the text of a script.

    Raises:
        SpecError: the script can't be read, or is empty.
    """
    text = read_text(script, _WANTED)
    if not text.strip():
        raise SpecError(f"is empty: name {_WANTED}", str(script))
    return text.removeprefix("\ufeff")  # which Python permits at the start of a file
