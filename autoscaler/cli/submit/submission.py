"""Submission of a job: its files are packed and sent to the controller with its spec."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from autoscaler.cli.output import print_json
from autoscaler.cli.submit.changes import parse_changes
from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import printable
from autoscaler.spec.bundle import Bundle, pack, require_files, require_script
from autoscaler.spec.job_file import JobFile
from autoscaler.spec.job_file_text import job_file_text
from autoscaler.wire.client import Client
from autoscaler.wire.messages import JobView, Resumption, Submission


def hand_in(
    client: Client, job_file: JobFile, environment: Mapping[str, str] | None = None
) -> tuple[JobView, Bundle]:
    """Submit the job of a file; return its view and its packed files.

    `environment` is added to the job's environment variables.
    """
    with _packed(job_file) as (bundle, archive):
        spec = replace(
            job_file.spec,
            bundle=bundle.sha256,
            environment={**job_file.spec.environment, **(environment or {})},
        )
        return client.submit(spec, archive), bundle


def hand_in_next_run(
    client: Client, job: str, job_file: JobFile, changes: Sequence[str], now_seconds: float
) -> JobView:
    """Resume a job with the files and settings of a job file, and apply `changes`."""
    change = parse_changes(changes, job_file.spec.instances, now_seconds)
    with _packed(job_file) as (bundle, archive):
        spec = replace(job_file.spec, bundle=bundle.sha256)
        resumption = Resumption(change.objective, change.instances, change.priority, spec)
        return client.resume(job, resumption, archive)


def print_spec(client: Client, job: str, now_seconds: float, as_json: bool) -> None:
    """Print the job file of a job, or what submits the job again over the API.

    Raises:
        SpecError: the job is a trial, or has values that a job file can't have.
    """
    submission = client.spec(job)
    if as_json:
        print_json(Submission, submission)
        return
    study = submission.spec.study
    if study is not None:
        raise SpecError(
            f"{job} is a trial of {study}, which submits it; --json prints it", "study"
        )
    text = job_file_text(submission.spec, now_seconds, client.job(job).submitted_seconds)
    print(
        f"# Job file of {printable(job)}. castor submit packs the files of its folder.\n{text}",
        end="",
    )


@contextmanager
def _packed(job_file: JobFile) -> Iterator[tuple[Bundle, Path]]:
    """Yield the packed files of a job and their archive, and remove the archive at the end."""
    with tempfile.TemporaryDirectory(prefix="castor-") as directory:
        archive = Path(directory) / "bundle.tar.gz"
        yield pack_job(job_file, archive), archive


def require_bundle(job_file: JobFile) -> None:
    """Check that the files of a job can be packed.

    Raises:
        SpecError: as `pack_job`.
    """
    with _packed(job_file):
        pass


def pack_job(job_file: JobFile, archive: Path) -> Bundle:
    """Pack the files of a job as `archive`.

    Raises:
        SpecError: the files can't be packed, or an ignore file excludes all of them.
    """
    bundle = pack(job_file.working_directory, archive, job_file.ref, job_file.maximum_bytes)
    if job_file.ref is None:
        require_files(bundle, job_file.working_directory)
        require_script(job_file.spec.command, job_file.working_directory)
    return bundle
