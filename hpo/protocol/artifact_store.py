"""The interface of Optuna's artifact stores."""

from __future__ import annotations

from typing import BinaryIO, Protocol


class ArtifactStore(Protocol):
    """Artifact store of Optuna, such as `optuna.artifacts.FileSystemArtifactStore`."""

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """Open an uploaded file."""

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Upload a file."""

    def remove(self, artifact_id: str) -> None:
        """Delete an uploaded file."""
