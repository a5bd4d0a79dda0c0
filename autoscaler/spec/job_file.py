"""Job files: YAML with a command, its files, instances and objective (docs/job-file.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import JobSpec
from autoscaler.domain.job_rules import require_valid_job
from autoscaler.domain.paths import inside, relative_names
from autoscaler.spec.form_file import located, read_text, validated
from autoscaler.spec.forms import Problem, problem_of
from autoscaler.spec.job_form import JobForm
from autoscaler.spec.located_yaml import LocatedYaml, read_yaml

_HERE: Final = "."


@dataclass(frozen=True, slots=True)
class JobFile:
    """Content of a job file.

    Attributes:
        spec: the job; its `bundle` is None, because no files are packed yet.
        working_directory: directory to pack.
        ref: commit, branch or tag to pack; None: the files as they are.
        maximum_bytes: limit on the size of the packed files, before compression.
    """

    spec: JobSpec
    working_directory: Path
    ref: str | None
    maximum_bytes: int


def load_job(source: Path | str, now_seconds: float) -> JobFile:
    """Read a job file.

    Args:
        source: path of the file; a `str` is the YAML text itself, with paths relative to the
            current directory.
        now_seconds: seconds since the Unix epoch, from which deadlines such as ``2h`` count.

    Raises:
        SpecError: the file can't be read or used. The message has a line for each problem: file,
            line number, key, problem and remedy; `field` is the first key.
    """
    if isinstance(source, str):
        return _job_file(read_yaml(source, "job"), Path.cwd(), now_seconds)
    text = read_text(source, "a job file; castor new SCRIPT.py writes one")
    return parse_job(text, source, now_seconds)


def parse_job(text: str, path: Path, now_seconds: float) -> JobFile:
    """Read the text of a job file that is, or will be, at `path`.

    Raises:
        SpecError: as `load_job`.
    """
    return _job_file(read_yaml(text, str(path)), path.resolve().parent, now_seconds)


def load_uploaded_job(text: str, directory: Path, now_seconds: float) -> JobFile:
    """Read the text of a job file whose working directory was uploaded to `directory`.

    Nothing outside that directory is read.

    Raises:
        SpecError: as `load_job`; or the working directory is not in the upload, or a `ref` is
            named, for which there is no repository.
    """
    document = read_yaml(text, "job")
    form = validated(document, JobForm, {"now_seconds": now_seconds})
    if form.ref is not None:
        problem = Problem(("ref",), "an upload has no repository: leave it out")
        raise located([problem], document)
    if form.working_directory != _HERE:
        try:
            names = relative_names(form.working_directory, "working_directory")
        except SpecError as error:
            raise located([problem_of(error)], document) from None
        directory = inside(directory, *names)
    return _job_file(document, directory, now_seconds, _HERE)


def _job_file(
    document: LocatedYaml, folder: Path, now_seconds: float, below: str | None = None
) -> JobFile:
    """Return the content of a document. `below` replaces its working directory; None keeps it."""
    form = validated(document, JobForm, {"now_seconds": now_seconds})
    spec = form.spec()
    try:
        require_valid_job(spec)
    except SpecError as error:
        raise located([problem_of(error)], document) from None
    named = form.working_directory if below is None else below
    directory = folder / Path(named).expanduser()
    if not directory.is_dir():
        problem = Problem(("working_directory",), f'"{directory}" is not a directory')
        raise located([problem], document)
    return JobFile(spec, directory.resolve(), form.ref, form.bundle_limit)
