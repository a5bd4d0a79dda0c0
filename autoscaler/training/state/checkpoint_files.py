"""Files of a checkpoint: its plain values, and the atomic rename that publishes it."""

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
    """Serialise the plain values of a checkpoint as its file holds them."""
    buffer = io.BytesIO()
    torch.save(dict(rest), buffer)
    return buffer.getvalue()


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def saved_digest(path: Path) -> str | None:
    """Return the SHA-256 of the plain values in the checkpoint at `path`; None if unreadable."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((path / MANIFEST).read_text())["sha256"][REST])
    return None


def publish(partial: Path, final: Path, replaced: Path) -> None:
    """Rename `partial` to `final` durably, after moving an existing `final` to `replaced`."""
    with contextlib.suppress(FileNotFoundError):
        final.rename(replaced)
    partial.rename(final)
    descriptor = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def root_cause(error: BaseException) -> str:
    """Return the operating system's message of an error that torch may wrap."""
    if isinstance(error, CheckpointException):
        for wrapped in error.failures.values():
            return root_cause(wrapped[0])
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
