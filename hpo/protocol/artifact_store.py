"""The interface of Optuna's artifact stores."""

from __future__ import annotations

from typing import BinaryIO, Protocol


class ArtifactStore(Protocol):
    """A store of Optuna's, such as `optuna.artifacts.FileSystemArtifactStore`."""

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """Open a file that was uploaded."""

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Upload a file."""

    def remove(self, artifact_id: str) -> None:
        """Delete a file that was uploaded."""
