"""Files that objectives want kept: from the instance into the study's own artifact store."""

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
    """Keep a file of the objective's, such as its best model, with its trial.

    When this returns, the file is in the artifact store that `hpo.optimize` was given, whatever
    becomes of the instance, as Optuna's own `upload_artifact` puts it there. Uploaded again, with
    the same name and content, it is there once.

    Args:
        trial: the objective's trial.
        path: a file on the instance.
        artifact_store: where the objective runs without Castor, beside the study: the store.

    Returns:
        The artifact's id, for `optuna.artifacts.download_artifact`; of a distributed objective on
        other ranks than the first of an instance, which alone uploads, nothing.

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
    if trial.is_shared and trial.place is None:
        return ""  # another rank of the instance than the one that speaks
    if trial.place is None or not trial.keeps_artifacts:
        raise SpecError("the study has no artifact store: give hpo.optimize one", "artifact_store")
    size_bytes = path.stat().st_size
    if size_bytes > MAXIMUM_FILE_BYTES:
        raise SpecError(
            f"{path} has {size_bytes:,} bytes: {MAXIMUM_FILE_BYTES:,} are taken at most", "path"
        )
    directory = trial.place.checkpoint_directory()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=directory, prefix="artifact-") as copy:
        sha256 = _copied(path, copy)
        return trial.keep_artifact(path.name, TrialFile(Path(copy.name).name, sha256))


def _copied(path: Path, copy: Any) -> str:
    """Copy a file, so that it stays as it is on its way; returns its SHA-256."""
    hashed = hashlib.sha256()
    with path.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            hashed.update(chunk)
            copy.write(chunk)
    copy.flush()
    return hashed.hexdigest()
