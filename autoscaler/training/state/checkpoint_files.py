"""Files of checkpoints: plain values, and the rename by which a checkpoint appears."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch.distributed.checkpoint.api import CheckpointException

from autoscaler.domain.checkpoint import MANIFEST

REST: Final = "rest.pt"


def packed(rest: Mapping[str, Any]) -> bytes:
    """Return the plain values of a checkpoint as its file has them."""
    buffer = io.BytesIO()
    torch.save(dict(rest), buffer)
    return buffer.getvalue()


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def saved_digest(path: Path) -> str | None:
    """Return the digest of the plain values in the checkpoint at `path`; None if there is none."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((path / MANIFEST).read_text())["sha256"][REST])
    return None


def publish(partial: Path, final: Path, replaced: Path) -> None:
    """Let `final` be what `partial` is; what was there before is `replaced` until then."""
    with contextlib.suppress(FileNotFoundError):
        final.rename(replaced)
    partial.rename(final)
    descriptor = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def root_cause(error: BaseException) -> str:
    """The operating system's own words, which torch wraps in its own."""
    if isinstance(error, CheckpointException):
        for wrapped in error.failures.values():
            return root_cause(wrapped[0])
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
