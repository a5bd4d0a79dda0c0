"""Job files: YAML that says what to run and what it may cost (docs/job-file.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import JobSpec
from autoscaler.spec.forms import Problem, problems_of, refusal
from autoscaler.spec.job_form import JobForm
from autoscaler.spec.located_yaml import LocatedYaml, read_yaml


@dataclass(frozen=True, slots=True)
class JobFile:
    """A job as its file says it.

    `spec.bundle` is None until `working_directory` (or the commit `ref` of it) is packed, which
    may be at most `maximum_bytes` large.
    """

    spec: JobSpec
    working_directory: Path
    ref: str | None
    maximum_bytes: int


def load_job(source: Path | str, now_seconds: float) -> JobFile:
    """Read a job file.

    Args:
        source: the path of the file; a `str` is the YAML text itself, as if it stood in a file of
            the current directory.
        now_seconds: seconds since the Unix epoch; deadlines that are durations count from it.

    Raises:
        SpecError: the file can't be read or used. Every problem is a line with the file, the
            line number, the key, what is wrong and what was meant; `field` is the first key.
    """
    if isinstance(source, str):
        return _job_file(read_yaml(source, "job"), Path.cwd(), now_seconds)
    try:
        text = source.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{source}: can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{source}: is not text in UTF-8") from error
    return _job_file(read_yaml(text, str(source)), source.resolve().parent, now_seconds)


def _job_file(document: LocatedYaml, folder: Path, now_seconds: float) -> JobFile:
    if not isinstance(document.value, dict):
        raise SpecError(f"{document.origin}: must be a mapping with at least a name and a command")
    try:
        form = JobForm.model_validate(document.value, context={"now_seconds": now_seconds})
    except ValidationError as error:
        raise _located(problems_of(error, JobForm), document) from error
    directory = folder / Path(form.working_directory).expanduser()
    if not directory.is_dir():
        problem = Problem(("working_directory",), f'"{directory}" is not a directory')
        raise _located([problem], document)
    return JobFile(form.spec(), directory.resolve(), form.ref, form.bundle_limit)


def _located(problems: list[Problem], document: LocatedYaml) -> SpecError:
    """The problems with the line of each, and without what a short form only implies."""
    told, lines = [], []
    for problem in problems:
        depth, line = document.locate(problem.path)
        path = problem.path if problem.is_absence else problem.path[:depth]
        told.append(Problem(path, problem.message))
        lines.append(f"{document.origin}:{line}: {told[-1].field}: {problem.message}")
    return refusal(told, lines)
