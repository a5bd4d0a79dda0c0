"""Files of a checkpoint: its manifest, its plain values, and the rename that publishes it.

Tensors are in files `__RANK_NUMBER.distcp` of torch.distributed.checkpoint, one for each rank that
wrote a part. `.metadata` says which tensors they hold.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch.distributed.checkpoint.api import CheckpointException

from autoscaler.domain.checkpoint import MANIFEST, step_of
from autoscaler.domain.errors import CheckpointError
from autoscaler.domain.text import parse_json, quoted

REST: Final = "rest.pt"
METADATA: Final = ".metadata"
PARTS_SUFFIX: Final = ".distcp"
_FORMAT: Final = 1


def packed(rest: Mapping[str, Any]) -> bytes:
    """Serialise the plain values of a checkpoint as its file holds them."""
    buffer = io.BytesIO()
    torch.save(dict(rest), buffer)
    return buffer.getvalue()


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def bytes_of(path: Path) -> bytes | None:
    """Return the content of a file; None if the file is missing."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def is_part(name: str) -> bool:
    """Return whether a file of this name holds tensors."""
    return name.endswith(PARTS_SUFFIX)


def writer_of(name: str) -> int:
    """Return the rank that writes the file of this name; rank 0 writes all that are no part."""
    rank = name.removeprefix("__").partition("_")[0]
    return int(rank) if is_part(name) and rank.isdigit() else 0


def manifest_of(step: int, digests: Mapping[str, str]) -> bytes:
    """Return the manifest of a checkpoint whose files have these SHA-256 digests."""
    files = dict(sorted(digests.items()))
    manifest = {"format": _FORMAT, "step": step, "torch": torch.__version__, "sha256": files}
    return json.dumps(manifest, indent=1).encode()


def digests_in(manifest: bytes, place: str) -> dict[str, str]:
    """Return the SHA-256 digests by file of a manifest; `place` is the checkpoint's name.

    Raises:
        CheckpointError: the checkpoint has another format than this version reads.
        ValueError: the manifest is damaged.
    """
    try:
        content = parse_json(manifest)
        digests = {str(name): str(digest) for name, digest in content["sha256"].items()}
        written_format = content.get("format")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{MANIFEST} can't be read: {error}") from error
    if written_format != _FORMAT:
        raise CheckpointError(
            f"{place} has format {quoted(written_format)}, and this version reads {_FORMAT}: "
            "use the version of castor that wrote it"
        )
    if any(Path(name).name != name for name in digests):
        raise ValueError(f"{MANIFEST} names files elsewhere")
    return digests


def published(directory: Path) -> Iterator[Path]:
    """Yield the paths of the published checkpoints in a directory, which may be missing."""
    if directory.is_dir():
        yield from (path for path in directory.iterdir() if step_of(path.name) is not None)


def sync(path: Path) -> None:
    """Flush a file or a directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(partial: Path, final: Path, replaced: Path) -> None:
    """Rename `partial` to `final` durably, after moving an existing `final` to `replaced`."""
    with contextlib.suppress(FileNotFoundError):
        final.rename(replaced)
    partial.rename(final)
    sync(final.parent)


def fault_in_files(path: Path, digests: Mapping[str, str], names: Iterable[str]) -> str | None:
    """Return what is wrong with the named files of the checkpoint at `path`, or None.

    Raises:
        OSError: a file can't be read, so its state is unknown.
    """
    try:
        for name in names:
            if file_digest(path / name) != digests[name]:
                return f"{name} does not match its checksum"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    return None


def root_cause(error: BaseException) -> str:
    """Return the operating system's message of an error that torch may wrap."""
    if isinstance(error, CheckpointException):
        for wrapped in error.failures.values():
            return root_cause(wrapped[0])
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
