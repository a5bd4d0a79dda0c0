"""Messages of the HTTP API about outputs and checkpoints of a job."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.output import OutputManifest


@dataclass(frozen=True, slots=True)
class OutputsView:
    """Outputs of a job and of its earlier runs, with a manifest for each instance."""

    job: str
    manifests: tuple[OutputManifest, ...]


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """File of a checkpoint, with its size and the SHA-256 of its content."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """Newest complete checkpoint of a job. `place` is the directory of its checkpoints."""

    job: str
    place: str
    name: str
    step: int
    files: tuple[CheckpointFile, ...]
