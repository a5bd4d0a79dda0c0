"""Files that objectives want kept: from the instance into the study's own artifact store."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import optuna
from optuna.artifacts import get_all_artifact_meta
from optuna.trial import BaseTrial, Trial

from autoscaler.domain.errors import SpecError
from autoscaler.domain.trial import MAXIMUM_FILE_BYTES, TrialFile
from autoscaler.wire.client import StudyClient
from hpo import attributes
from hpo.trial import RemoteTrial

_CHUNK_BYTES = 1 << 20


class ArtifactStore(Protocol):
    """A store of Optuna's, such as `optuna.artifacts.FileSystemArtifactStore`."""

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """Open a file that was uploaded."""

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Upload a file."""

    def remove(self, artifact_id: str) -> None:
        """Delete a file that was uploaded."""


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


class StudyArtifacts:
    """Puts what trials upload into a study's artifact store; each once, whoever died meanwhile."""

    def __init__(self, store: ArtifactStore, line: StudyClient) -> None:
        self._store = store
        self._line = line

    def keep(self, trial: Trial, name: str, sha256: str) -> str:
        """Keep a file that the controller has; returns its id in the store.

        Raises:
            NotFound: the controller does not have it.
            Unavailable: the controller does not answer.
        """
        key = f"{sha256} {name}"
        known = dict(trial.user_attrs.get(attributes.ARTIFACTS, {}))
        if known.get(key) is None:
            with tempfile.TemporaryDirectory(prefix="castor-artifact-") as directory:
                file = Path(directory) / Path(name).name
                self._line.fetch_file(sha256, file)
                known[key] = self._write(trial, file, known, key)
            trial.set_user_attr(attributes.ARTIFACTS, known)
        self._line.remove_file(sha256)
        return str(known[key])

    def _write(self, trial: Trial, file: Path, known: dict[str, str | None], key: str) -> str:
        """Upload a file, unless a driver that died began to: then it is finished."""
        if key in known:
            for meta in get_all_artifact_meta(trial):
                if meta.filename == file.name and meta.artifact_id not in known.values():
                    with file.open("rb") as content:
                        self._store.write(meta.artifact_id, content)
                    return meta.artifact_id
        trial.set_user_attr(attributes.ARTIFACTS, {**known, key: None})
        return optuna.artifacts.upload_artifact(
            artifact_store=self._store, file_path=str(file), study_or_trial=trial
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
