"""Files that objectives want kept come into the study's artifact store: whole, and once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

import optuna
import pytest
from optuna.artifacts import FileSystemArtifactStore, download_artifact, get_all_artifact_meta
from optuna.trial import TrialState

from autoscaler.domain.errors import NotFound, SpecError, Unavailable
from autoscaler.domain.trial import TrialFile
from hpo.driver.artifacts import StudyArtifacts
from hpo.driver.trial_server import TrialServer, running_trials
from hpo.protocol import attributes
from hpo.worker import artifacts
from hpo.worker.artifacts import upload_artifact
from hpo.worker.process import run_trial
from tests.hpo.lines import DirectChannel, Objective, WorkerDied
from tests.hpo.site import study_of


class Controller:
    """Stand-in for the files' storage, which is unavailable for a number of calls."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.away = 0

    def fetch_file(self, sha256: str, destination: Path) -> None:
        if self.away:
            self.away -= 1
            raise Unavailable("away")
        if sha256 not in self.files:
            raise NotFound(f"file {sha256[:12]} was not uploaded")
        destination.write_bytes(self.files[sha256])

    def remove_file(self, sha256: str) -> None:
        self.files.pop(sha256, None)


class WorkerContext(DirectChannel):
    """A worker's line and place, with an agent that hands files to the controller."""

    must_drain = False

    def __init__(self, server: TrialServer, controller: Controller, directory: Path) -> None:
        super().__init__(server)
        self._controller = controller
        self._directory = directory

    def checkpoint_directory(self) -> Path:
        return self._directory

    def ask(self, text: str, file: TrialFile | None = None) -> str:
        if file is not None:
            self._controller.files[file.sha256] = (self._directory / file.name).read_bytes()
        return super().ask(text)


class Keeping:
    """A study with an artifact store, and what runs its trials."""

    def __init__(self, directory: Path) -> None:
        self.study = study_of()
        self.controller = Controller()
        (directory / "store").mkdir()
        self.store: FileSystemArtifactStore = FileSystemArtifactStore(directory / "store")
        self.directory = directory
        TrialServer(self.study, self.study.ask()).bind("sweep-0")

    def run(self, objective: Objective) -> None:
        server = running_trials(self.study)["sweep-0"]
        server.artifacts = StudyArtifacts(self.store, self.controller)  # type: ignore[arg-type]
        line = WorkerContext(server, self.controller, self.directory / "checkpoints")
        run_trial(objective, line, line)  # type: ignore[arg-type]

    def kept(self) -> dict[str, bytes]:
        found = {}
        for meta in get_all_artifact_meta(self.study.trials[0], storage=self.study._storage):
            path = self.directory / f"downloaded {meta.artifact_id}"
            download_artifact(
                artifact_store=self.store, artifact_id=meta.artifact_id, file_path=str(path)
            )
            found[f"{meta.filename} {meta.mimetype}"] = path.read_bytes()
        return found


@pytest.fixture
def keeping(tmp_path: Path) -> Keeping:
    return Keeping(tmp_path)


def uploading(path: Path, **contents: bytes) -> Objective:
    def objective(trial: optuna.trial.BaseTrial) -> float:
        for name, content in contents.items():
            (path / f"{name}.json").write_bytes(content)
            upload_artifact(trial, path / f"{name}.json")
        return 1.0

    return objective


def test_what_is_uploaded_is_found_by_optuna(keeping: Keeping, tmp_path: Path) -> None:
    keeping.run(uploading(tmp_path, best=b"weights", log=b"lines"))
    assert keeping.kept() == {
        "best.json application/json": b"weights",
        "log.json application/json": b"lines",
    }
    assert keeping.controller.files == {}
    assert list((tmp_path / "checkpoints").iterdir()) == []
    assert keeping.study.trials[0].state is TrialState.COMPLETE


@pytest.mark.parametrize("when", ["before", "after", "said"])
def test_a_driver_that_dies_as_it_keeps_a_file_keeps_it_once(
    keeping: Keeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Before its content is there, after it, or as it notes that it is."""
    write = FileSystemArtifactStore.write
    has_died: list[bool] = []

    def dies(store: FileSystemArtifactStore, artifact_id: str, content: BinaryIO) -> None:
        if has_died or when == "said":
            return write(store, artifact_id, content)
        has_died.append(True)
        if when == "after":
            write(store, artifact_id, content)
        raise WorkerDied

    def dies_noting(self: Controller, sha256: str) -> None:
        if not has_died and when == "said":
            has_died.append(True)
            raise WorkerDied
        self.files.pop(sha256, None)

    monkeypatch.setattr(FileSystemArtifactStore, "write", dies)
    monkeypatch.setattr(Controller, "remove_file", dies_noting)
    objective = uploading(tmp_path, best=b"weights")
    with pytest.raises(WorkerDied):
        keeping.run(objective)
    keeping.run(objective)
    assert keeping.kept() == {"best.json application/json": b"weights"}
    assert len(list((tmp_path / "store").iterdir())) == 1


def test_another_content_is_another_artifact(keeping: Keeping, tmp_path: Path) -> None:
    def objective(trial: optuna.trial.BaseTrial) -> float:
        ids = []
        for content in (b"first", b"second", b"first"):
            (tmp_path / "best.bin").write_bytes(content)
            ids.append(upload_artifact(trial, tmp_path / "best.bin"))
        assert ids[0] == ids[2] != ids[1]
        return 1.0

    keeping.run(objective)
    assert keeping.study.trials[0].state is TrialState.COMPLETE
    assert len(keeping.study.trials[0].user_attrs[attributes.ARTIFACTS]) == 2


def test_what_can_not_be_kept_is_refused_by_name(
    keeping: Keeping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "MAXIMUM_FILE_BYTES", 4)
    (tmp_path / "large").write_bytes(b"12345")
    (tmp_path / "small").write_bytes(b"1234")

    def objective(trial: optuna.trial.BaseTrial) -> float:
        with pytest.raises(SpecError, match="large has 5 bytes: 4 are taken at most"):
            upload_artifact(trial, tmp_path / "large")
        with pytest.raises(SpecError, match=r"path: .* is no file"):
            upload_artifact(trial, tmp_path)
        monkeypatch.setattr(
            WorkerContext, "ask", lambda self, text, file=None: DirectChannel.ask(self, text)
        )
        with pytest.raises(RuntimeError, match=r"NotFound: file .* was not uploaded"):
            upload_artifact(trial, tmp_path / "small")
        return 1.0

    keeping.run(objective)
    assert keeping.study.trials[0].state is TrialState.COMPLETE


def test_without_a_store_nothing_is_sent(tmp_path: Path) -> None:
    (tmp_path / "best.bin").write_bytes(b"weights")
    study = study_of()

    def objective(trial: optuna.trial.BaseTrial) -> float:
        upload_artifact(trial, tmp_path / "best.bin")
        return 1.0

    line = WorkerContext(TrialServer(study, study.ask()), Controller(), tmp_path)
    run_trial(objective, line, line)  # type: ignore[arg-type]
    assert study.trials[0].state is TrialState.FAIL
    assert "artifact_store: the study has no" in study.trials[0].user_attrs[attributes.CAUSE]
    with pytest.raises(SpecError, match="artifact_store: without Castor, name the store"):
        study.optimize(objective, n_trials=1)
    store: FileSystemArtifactStore = FileSystemArtifactStore(tmp_path)
    artifact = upload_artifact(study.ask(), tmp_path / "best.bin", store)
    assert (tmp_path / artifact).read_bytes() == b"weights"


def test_a_controller_that_is_away_is_not_the_objectives_to_see(keeping: Keeping) -> None:
    server = running_trials(keeping.study)["sweep-0"]
    server.artifacts = StudyArtifacts(keeping.store, keeping.controller)  # type: ignore[arg-type]
    keeping.controller.away = 1
    sha256 = hashlib.sha256(b"weights").hexdigest()
    keeping.controller.files[sha256] = b"weights"
    with pytest.raises(Unavailable):
        server._keep_artifact("best.bin", sha256)
    server._keep_artifact("best.bin", sha256)
    assert keeping.kept() == {"best.bin application/octet-stream": b"weights"}
