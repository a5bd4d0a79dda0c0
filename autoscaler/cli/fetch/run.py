"""Download of a job's output files and newest checkpoint, for `castor fetch`."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import mkstemp
from typing import Final

from rich import box
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from autoscaler.domain.errors import CastorError, Conflict, NotFound, SpecError
from autoscaler.domain.output import (
    OutputFile,
    by_instance,
    is_output_path,
    newest_of_each_path,
    require_sound,
)
from autoscaler.wire.client import Client

_ATTEMPTS: Final = 3  # a running job may replace a file between listing and download
_PATHS_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """File to download.

    Attributes:
        path: relative path below the target directory.
        bytes: expected size.
        sha256: expected hash of the content, hexadecimal.
        source: path of the file in the controller's API.
        instance: instance that wrote the file; None for a file of a checkpoint.
        modified_seconds: time at which the script last changed the file; None if unknown.
    """

    path: str
    bytes: int
    sha256: str
    source: str
    instance: str | None = None
    modified_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class FileSelection:
    """Files of a job to fetch.

    Attributes:
        checkpoint: fetch the newest checkpoint, too.
        every_instance: fetch the files of each instance to its own folder.
    """

    checkpoint: bool = False
    every_instance: bool = False


@dataclass(frozen=True, slots=True)
class FileListing:
    """Files of a job that can be fetched, and paths of outputs that exceeded its limits."""

    job: str
    files: tuple[RemoteFile, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Files downloaded to `directory`, and paths of files that were already there.

    `checkpoint` is the folder of the checkpoint in `directory`; None if it was not asked for.
    """

    job: str
    directory: str
    fetched: tuple[RemoteFile, ...]
    unchanged: tuple[str, ...]
    checkpoint: str | None = None


def list_results(client: Client, job: str, choice: FileSelection) -> FileListing:
    """Return the files of a job that can be fetched.

    Raises:
        NotFound: the job has no outputs, or has no checkpoint and `choice` asks for it.
        SpecError: a path of the list leaves the target directory.
    """
    view = client.outputs(job)
    manifests = [require_sound(manifest) for manifest in view.manifests]
    chosen = by_instance(manifests) if choice.every_instance else newest_of_each_path(manifests)
    files = [
        _output(view.job, manifest.instance, file)
        for manifest, file in chosen
        if is_output_path(file.path)
    ]
    if choice.checkpoint:
        files += _checkpoint_files(client, view.job, len(files))
    left_out = {path for manifest in manifests for path in manifest.left_out}
    if not files:
        raise NotFound(f"{view.job} has no outputs: {_why_none(client, view.job)}")
    return FileListing(view.job, tuple(files), tuple(sorted(left_out)))


def fetch_results(
    client: Client, job: str, directory: Path | None, choice: FileSelection, overwrites: bool
) -> Fetched:
    """Download a job's outputs to `directory`; None: a folder named after the job.

    Local files of equal content are not downloaded again.

    Raises:
        Conflict: local files differ and `overwrites` is False; nothing is written.
        CastorError: a file can't be fetched, or does not match its hash.
    """
    listing = list_results(client, job, choice)
    root = directory or Path(listing.job)
    missing, unchanged = _compare(root, listing.files, overwrites)
    fetched: list[RemoteFile] = []
    with _progress(sum(file.bytes for file in missing)) as on_bytes:
        for file in missing:
            fetched.append(_fetch_newest(client, listing.job, root, file, choice, on_bytes))
    saved = next((file for file in listing.files if file.instance is None), None)
    checkpoint = None if saved is None else saved.path.partition("/")[0]
    return Fetched(listing.job, str(root), tuple(fetched), unchanged, checkpoint)


def listing_table(listing: FileListing) -> Table:
    """Return a table of path, size in bytes, local time of change and instance."""
    table = Table("file", box=box.SIMPLE_HEAD)
    table.add_column("size", justify="right")
    table.add_column("changed")
    table.add_column("instance")
    for file in listing.files:
        seconds = file.modified_seconds
        changed = "" if seconds is None else f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"
        table.add_row(file.path, f"{file.bytes:,}", changed, file.instance or "checkpoint")
    return table


def told_left_out(listing: FileListing) -> str:
    """Return a line that names outputs above the job's limits; empty if there are none."""
    if not listing.left_out:
        return ""
    named = ", ".join(listing.left_out[:_PATHS_SHOWN])
    more = ", ..." if len(listing.left_out) > _PATHS_SHOWN else ""
    return f"not uploaded: {named}{more}; `castor status {listing.job}` shows the reason"


def _output(job: str, instance: str, file: OutputFile) -> RemoteFile:
    source = f"{job}/outputs/{instance}/{file.sha256}"
    return RemoteFile(file.path, file.bytes, file.sha256, source, instance, file.modified_seconds)


def _why_none(client: Client, job: str) -> str:
    """Return why a job has no outputs, and what can be done instead."""
    view = client.job(job)
    if view.study is not None:
        return (
            f"it is a trial of {view.study}, and trials keep none; hpo.upload_artifact keeps "
            "files with the study"
        )
    if not view.phase.is_final:
        return (
            "they are uploaded at each checkpoint and when the script has ended; castor status "
            f"{job} shows its progress"
        )
    kept = "its script ended without a file that is kept (docs/outputs.md)"
    try:
        newest = client.checkpoint(job).name
    except NotFound:
        return f"{kept}, and no checkpoint was saved; castor logs {job} prints its log"
    return f"{kept}; castor fetch {job} --checkpoint fetches its newest checkpoint, {newest}"


def _checkpoint_files(client: Client, job: str, outputs: int) -> list[RemoteFile]:
    """Return the files of the newest checkpoint.

    Raises:
        NotFound: there is none; the message counts the `outputs` that can be fetched.
        SpecError: a path of the list leaves the checkpoint.
    """
    try:
        checkpoint = client.checkpoint(job)
    except NotFound as error:
        noun = "output file" if outputs == 1 else "output files"
        rest = f"fetches its {outputs} {noun}" if outputs else "says what there is"
        raise NotFound(f"{error}; castor fetch {job} without --checkpoint {rest}") from None
    files = [
        RemoteFile(
            f"{checkpoint.name}/{file.name}",
            file.bytes,
            file.sha256,
            f"{job}/checkpoints/{checkpoint.name}/{file.name}",
        )
        for file in checkpoint.files
    ]
    for file in files:
        if not is_output_path(file.path):
            raise SpecError(f"{file.path!r} leads out of the checkpoint")
    return files


def _compare(
    root: Path, files: Sequence[RemoteFile], overwrites: bool
) -> tuple[list[RemoteFile], tuple[str, ...]]:
    """Return the files to download, and the paths of local files of equal content.

    Raises:
        Conflict: local files differ and `overwrites` is False.
    """
    missing, unchanged, different = [], [], []
    for file in files:
        target = _target(root, file.path)
        if not os.path.lexists(target):
            missing.append(file)
        elif _is_same(target, file):
            unchanged.append(file.path)
        else:
            different.append(file.path)
            missing.append(file)
    if different and not overwrites:
        named = ", ".join(different[:_PATHS_SHOWN]) + (
            ", ..." if len(different) > _PATHS_SHOWN else ""
        )
        raise Conflict(
            f"{root} has {len(different)} files of other content: {named}; --force replaces them, "
            "--to DIR fetches to another directory"
        )
    return missing, tuple(unchanged)


def _target(root: Path, path: str) -> Path:
    """Return the local path of a file.

    Raises:
        Conflict: a parent is a link or a file, or the path itself is a directory.
    """
    folder = root
    for part in path.split("/")[:-1]:
        folder /= part
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise Conflict(f"{folder} is no directory: remove it, or name another with --to")
    target = root / path
    if target.is_dir() and not target.is_symlink():
        raise Conflict(f"{target} is a directory: remove it, or name another with --to")
    return target


def _is_same(target: Path, file: RemoteFile) -> bool:
    if target.is_symlink() or not target.is_file() or target.stat().st_size != file.bytes:
        return False
    with target.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == file.sha256


def _fetch_newest(
    client: Client,
    job: str,
    root: Path,
    file: RemoteFile,
    choice: FileSelection,
    on_bytes: Callable[[int], None],
) -> RemoteFile:
    """Download a file and return it. If the job replaced it meanwhile, fetch the new version.

    Raises:
        NotFound: the job removed the file, or replaced it at each of 3 attempts.
    """
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            _fetch(client, root, file, on_bytes)
            return file
        except NotFound:
            if not attempts_left:
                raise
            files = list_results(client, job, choice).files
            newer = next((newer for newer in files if newer.path == file.path), None)
            if newer is None:
                raise NotFound(
                    f"the job removed {file.path} during the download: run castor fetch again"
                ) from None
            file = newer
    raise AssertionError("the last attempt returns or raises")


def _fetch(client: Client, root: Path, file: RemoteFile, on_bytes: Callable[[int], None]) -> None:
    target = _target(root, file.path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = mkstemp(dir=target.parent, prefix=".castor-")
        os.close(descriptor)
        partial = Path(name)
        try:
            client.fetch(file.source, partial, on_bytes)
            if not _is_same(partial, file):
                raise CastorError(
                    f"{file.path} was damaged in transfer or in storage: its SHA-256 differs; run "
                    "castor fetch again"
                )
            partial.chmod(0o666 & ~_umask())
            if file.modified_seconds is not None:
                os.utime(partial, (file.modified_seconds, file.modified_seconds))
            partial.replace(target)
        finally:
            with suppress(FileNotFoundError):
                partial.unlink()
    except OSError as error:
        raise SpecError(f"{target} can't be written: {error.strerror}", "--to") from error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextmanager
def _progress(total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal's standard error.

    Yields a function to call with the bytes of each received part.
    """
    columns = (TextColumn("fetching"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("fetch", total=total_bytes)
        yield lambda received: progress.update(task, advance=received)
