"""Transfer of uploaded files into the artifact store of a study."""

from __future__ import annotations

import tempfile
from pathlib import Path

import optuna
from optuna.artifacts import get_all_artifact_meta
from optuna.trial import Trial

from autoscaler.wire.client import StudyClient
from hpo.protocol import attributes
from hpo.protocol.artifact_store import ArtifactStore


class StudyArtifacts:
    """Copies uploaded files of trials into the study's artifact store, each once."""

    def __init__(self, store: ArtifactStore, study_client: StudyClient) -> None:
        self._store = store
        self._study_client = study_client

    def keep(self, trial: Trial, name: str, sha256: str) -> str:
        """Copy a file from the controller into the store; return its artifact id.

        A repeated call returns the id of the first one, also after a driver has died in between.

        Raises:
            NotFound: the controller does not have the file.
            Unavailable: the controller does not respond.
        """
        key = f"{sha256} {name}"
        known = dict(trial.user_attrs.get(attributes.ARTIFACTS, {}))
        if known.get(key) is None:
            with tempfile.TemporaryDirectory(prefix="castor-artifact-") as directory:
                file = Path(directory) / Path(name).name
                self._study_client.fetch_file(sha256, file)
                known[key] = self._write(trial, file, known, key)
            trial.set_user_attr(attributes.ARTIFACTS, known)
        self._study_client.remove_file(sha256)
        return str(known[key])

    def _write(self, trial: Trial, file: Path, known: dict[str, str | None], key: str) -> str:
        """Upload a file, or finish the upload that a dead driver began."""
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
