"""Outputs: files of a job's script that are kept beyond the life of its instances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.paths import relative_names
from autoscaler.domain.rules import (
    LATEST_SECONDS,
    require_at_most,
    require_count,
    require_line,
    require_number,
    require_sha256,
)
from autoscaler.domain.text import quoted

DEFAULT_OUTPUT_BYTES: Final = 5_000_000_000
MOST_OUTPUT_FILES: Final = 10_000
MANIFEST_NAME: Final = "outputs.json"
_MOST_BYTES: Final = 1 << 60
_LONGEST_LEFT_OUT: Final = 50_000  # characters of a path with every character escaped


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """Selection of the files to keep below the job's working directory.

    `patterns` are paths, or globs in which ``**`` matches any directories. None selects the files
    that the script wrote or changed. At most `maximum_bytes` are kept of one instance.
    """

    patterns: tuple[str, ...] | None = None
    maximum_bytes: int = DEFAULT_OUTPUT_BYTES


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One kept file: path below the working directory, size, SHA-256 and time of change."""

    path: str
    bytes: int
    sha256: str
    modified_seconds: float


@dataclass(frozen=True, slots=True)
class OutputManifest:
    """The kept outputs of one instance.

    `left_out` are paths of files beyond the limits, or that the agent can't read.
    """

    job: str
    instance: str
    kept_seconds: float
    files: tuple[OutputFile, ...]
    left_out: tuple[str, ...] = ()


def is_output_path(path: str) -> bool:
    """Return whether `path` is relative, normalised and printable, and has no ``..``."""
    try:
        names = relative_names(path, "")
    except SpecError:
        return False
    return path.isprintable() and "/".join(names) == path


def require_sound(manifest: OutputManifest) -> OutputManifest:
    """Return the manifest after checking all its values; a job may have written it.

    Raises:
        SpecError: a name, size, time or hash is invalid; the message names it.
    """
    if not is_output_path(manifest.instance) or "/" in manifest.instance:
        raise SpecError(f"{quoted(manifest.instance)} is not a name of an instance")
    require_at_most(len(manifest.files), "files", 2 * MOST_OUTPUT_FILES)
    require_at_most(len(manifest.left_out), "left_out", MOST_OUTPUT_FILES)
    require_number(manifest.kept_seconds, "kept_seconds", 0.0, LATEST_SECONDS)
    for path in manifest.left_out:
        require_line(path, "left_out", longest=_LONGEST_LEFT_OUT)
    for file in manifest.files:
        if not is_output_path(file.path):
            raise SpecError(f"{quoted(file.path)} leads out of the working directory")
        require_sha256(file.sha256)
        require_count(file.bytes, "bytes", _MOST_BYTES, least=0)
        require_number(file.modified_seconds, "modified_seconds", 0.0, LATEST_SECONDS)
    return manifest


def newest_of_each_path(
    manifests: Iterable[OutputManifest],
) -> tuple[tuple[OutputManifest, OutputFile], ...]:
    """Return each path's file from the latest manifest that has it, sorted by path.

    A replacement instance may not have written every file again. Its missing files are taken from
    manifests of earlier instances.
    """
    newest: dict[str, tuple[OutputManifest, OutputFile]] = {}
    for manifest in sorted(manifests, key=lambda manifest: manifest.kept_seconds):
        newest.update({file.path: (manifest, file) for file in manifest.files})
    return tuple(newest[path] for path in sorted(newest))


def by_instance(
    manifests: Iterable[OutputManifest],
) -> tuple[tuple[OutputManifest, OutputFile], ...]:
    """Return every file of every instance, with paths that start with the instance's name."""
    return tuple(
        (manifest, replace(file, path=f"{manifest.instance}/{file.path}"))
        for manifest in sorted(manifests, key=lambda manifest: manifest.instance)
        for file in sorted(manifest.files, key=lambda file: file.path)
    )
