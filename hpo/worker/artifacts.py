"""Upload of files of objectives as artifacts of their trials."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import BaseTrial, Trial

from autoscaler.domain.errors import SpecError
from autoscaler.domain.trial import MAXIMUM_FILE_BYTES, TrialFile
from hpo.protocol.artifact_store import ArtifactStore
from hpo.worker.trial import RemoteTrial

_CHUNK_BYTES = 1 << 20


def upload_artifact(
    trial: BaseTrial, path: str | Path, artifact_store: ArtifactStore | None = None
) -> str:
    """Upload a file, such as the best model, as an artifact of the trial.

    When the function returns, the file is in the artifact store that `hpo.optimize` was given, as
    Optuna's own `upload_artifact` stores it. A repeated upload of the same name and content is
    stored once.

    Args:
        trial: the objective's trial.
        path: a file on the instance.
        artifact_store: the store, for an objective that runs without Castor.

    Returns:
        The artifact's id, for `optuna.artifacts.download_artifact`. Only the first rank of an
        instance uploads; other ranks of a distributed objective receive an empty text.

    Raises:
        SpecError: there is no such file, it is too large, or the study has no artifact store.
    """
    path = Path(path)
    if not path.is_file():
        raise SpecError(f"{path} is no file", "path")
    if isinstance(trial, RemoteTrial):
        return _upload(trial, path)
    if artifact_store is None or not isinstance(trial, Trial):
        raise SpecError("without Castor, name the store to upload to", "artifact_store")
    return optuna.artifacts.upload_artifact(
        artifact_store=artifact_store, file_path=str(path), study_or_trial=trial
    )


def _upload(trial: RemoteTrial, path: Path) -> str:
    if trial.is_shared and trial.context is None:
        return ""  # a following rank: rank 0 of the instance uploads
    if trial.context is None or not trial.keeps_artifacts:
        raise SpecError("the study has no artifact store: give hpo.optimize one", "artifact_store")
    size_bytes = path.stat().st_size
    if size_bytes > MAXIMUM_FILE_BYTES:
        raise SpecError(
            f"{path} has {size_bytes:,} bytes: {MAXIMUM_FILE_BYTES:,} are taken at most", "path"
        )
    directory = trial.context.checkpoint_directory()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=directory, prefix="artifact-") as copy:
        sha256 = _copied(path, copy)
        return trial.keep_artifact(path.name, TrialFile(Path(copy.name).name, sha256))


def _copied(path: Path, copy: Any) -> str:
    """Copy a file, so that later changes do not matter; return its SHA-256."""
    hashed = hashlib.sha256()
    with path.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            hashed.update(chunk)
            copy.write(chunk)
    copy.flush()
    return hashed.hexdigest()
