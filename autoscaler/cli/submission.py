"""Handing a job in: its files packed, sent to the controller with what it is to be."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autoscaler.spec.bundle import Bundle, pack, require_files
from autoscaler.spec.job_file import JobFile
from autoscaler.wire.client import Client
from autoscaler.wire.messages import JobView


def hand_in(
    client: Client, job_file: JobFile, environment: Mapping[str, str] | None = None
) -> tuple[JobView, Bundle]:
    """Submit the job of a file; `environment` is added to its own."""
    with tempfile.TemporaryDirectory(prefix="castor-") as directory:
        archive = Path(directory) / "bundle.tar.gz"
        bundle = pack_job(job_file, archive)
        spec = replace(
            job_file.spec,
            bundle=bundle.sha256,
            environment={**job_file.spec.environment, **(environment or {})},
        )
        return client.submit(spec, archive), bundle


def require_bundle(job_file: JobFile) -> None:
    """Pack the files of a job and discard the archive.

    Raises:
        SpecError: as `pack_job`.
    """
    with tempfile.TemporaryDirectory(prefix="castor-") as directory:
        pack_job(job_file, Path(directory) / "bundle.tar.gz")


def pack_job(job_file: JobFile, archive: Path) -> Bundle:
    """Pack the files of a job as `archive`.

    Raises:
        SpecError: they can't be packed, or an ignore file names all of them.
    """
    bundle = pack(job_file.working_directory, archive, job_file.ref, job_file.maximum_bytes)
    if job_file.ref is None:
        require_files(bundle, job_file.working_directory)
    return bundle
