"""Fetching what a job has produced: its outputs, and its newest checkpoint."""

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

_CHUNK_BYTES: Final = 1 << 20
_TRIES: Final = 3  # a job that runs may replace a file between the list and its download
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file to fetch: where it goes below the target, and what its content must be.

    `instance` is None for files of a checkpoint; `modified_seconds` is when the script changed it.
    """

    path: str
    bytes: int
    sha256: str
    source: str
    instance: str | None = None
    modified_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a job is fetched. `every_instance` puts each instance's files in a folder."""

    checkpoint: bool = False
    every_instance: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """Files that a job has to fetch, and outputs above its limits, which were not kept."""

    job: str
    files: tuple[RemoteFile, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Files that were written below `directory`, and those that had been there before."""

    job: str
    directory: str
    fetched: tuple[RemoteFile, ...]
    unchanged: tuple[str, ...]


def list_results(client: Client, job: str, choice: Choice) -> Listing:
    """Return what there is to fetch.

    Raises:
        NotFound: there is nothing, or no checkpoint where one is asked for.
        SpecError: the list names a path that leads elsewhere.
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
        files += _checkpoint_files(client, view.job)
    left_out = {path for manifest in manifests for path in manifest.left_out}
    if not files:
        raise NotFound(
            f"{view.job} has no outputs: they are kept at each checkpoint and when the script has "
            "ended; --checkpoint fetches its newest checkpoint"
        )
    return Listing(view.job, tuple(files), tuple(sorted(left_out)))


def fetch_results(
    client: Client, job: str, directory: Path | None, choice: Choice, overwrites: bool
) -> Fetched:
    """Download outputs below `directory`, by default a folder named after the job.

    Files that are there already with the same content are left alone.

    Raises:
        Conflict: files of other content are there, and `overwrites` is False. Nothing is written.
        CastorError: a file can't be fetched, or does not match its hash.
    """
    listing = list_results(client, job, choice)
    root = directory or Path(listing.job)
    missing, unchanged = _compare(root, listing.files, overwrites)
    fetched: list[RemoteFile] = []
    with _progress(sum(file.bytes for file in missing)) as on_bytes:
        for file in missing:
            fetched.append(_fetch_newest(client, listing.job, root, file, choice, on_bytes))
    return Fetched(listing.job, str(root), tuple(fetched), unchanged)


def listing_table(listing: Listing) -> Table:
    """Return the files as a table."""
    table = Table("file", box=box.SIMPLE_HEAD)
    table.add_column("size", justify="right")
    table.add_column("changed")
    table.add_column("instance")
    for file in listing.files:
        seconds = file.modified_seconds
        changed = "" if seconds is None else f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"
        table.add_row(file.path, f"{file.bytes:,}", changed, file.instance or "checkpoint")
    return table


def told_left_out(listing: Listing) -> str:
    """Return a line about outputs that were not kept; empty if all were."""
    if not listing.left_out:
        return ""
    named = ", ".join(listing.left_out[:_NAMED])
    more = ", ..." if len(listing.left_out) > _NAMED else ""
    return f"not kept: {named}{more}; `castor status {listing.job}` says why"


def _output(job: str, instance: str, file: OutputFile) -> RemoteFile:
    source = f"{job}/outputs/{instance}/{file.sha256}"
    return RemoteFile(file.path, file.bytes, file.sha256, source, instance, file.modified_seconds)


def _checkpoint_files(client: Client, job: str) -> list[RemoteFile]:
    checkpoint = client.checkpoint(job)
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
    """Return the files to download, and the paths of those that are there already."""
    missing, unchanged, others = [], [], []
    for file in files:
        target = _target(root, file.path)
        if not os.path.lexists(target):
            missing.append(file)
        elif _is_same(target, file):
            unchanged.append(file.path)
        else:
            others.append(file.path)
            missing.append(file)
    if others and not overwrites:
        named = ", ".join(others[:_NAMED]) + (", ..." if len(others) > _NAMED else "")
        raise Conflict(
            f"{root} has {len(others)} files of other content: {named}; --force replaces them, "
            "--to DIR fetches elsewhere"
        )
    return missing, tuple(unchanged)


def _target(root: Path, path: str) -> Path:
    """Return where a file goes.

    Raises:
        Conflict: a link or a file stands in the way, so that it would go elsewhere.
    """
    folder = root
    for part in path.split("/")[:-1]:
        folder /= part
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise Conflict(f"{folder} is no directory: remove it, or fetch elsewhere with --to")
    target = root / path
    if target.is_dir() and not target.is_symlink():
        raise Conflict(f"{target} is a directory: remove it, or fetch elsewhere with --to")
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
    choice: Choice,
    on_bytes: Callable[[int], None],
) -> RemoteFile:
    """Download one file; if the job has replaced it meanwhile, the version of now."""
    for tries_left in reversed(range(_TRIES)):
        try:
            _fetch(client, root, file, on_bytes)
            return file
        except NotFound:
            if not tries_left:
                raise
            files = list_results(client, job, choice).files
            newer = next((newer for newer in files if newer.path == file.path), None)
            if newer is None:
                raise NotFound(
                    f"{file.path} was removed by the job meanwhile: fetch again"
                ) from None
            file = newer
    raise AssertionError("the last try returns or raises")


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
                    f"{file.path} was damaged on its way, or where it is kept: its hash is "
                    "another; fetch again"
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
    """Show a bar on a terminal's standard error; yield what is told the size of each part."""
    columns = (TextColumn("fetching"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("fetch", total=total_bytes)
        yield lambda received: progress.update(task, advance=received)
