"""Messages of the HTTP API about what a job has produced."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.output import OutputManifest


@dataclass(frozen=True, slots=True)
class OutputsView:
    """Outputs of a job and of the runs that it resumes, one manifest for each instance."""

    job: str
    manifests: tuple[OutputManifest, ...]


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """One file of a checkpoint, with its size and the SHA-256 of its content."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """The newest whole checkpoint of a job. `place` is where its checkpoints are."""

    job: str
    place: str
    name: str
    step: int
    files: tuple[CheckpointFile, ...]
