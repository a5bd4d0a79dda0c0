"""Objectives with other frameworks' loops, and callbacks of trackers; `make test-frameworks`."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path

import optuna
import pytest

import hpo
from tests.hpo.kills import kill_workers

FOLDER = Path(__file__).parents[2] / "examples" / "frameworks"


@pytest.fixture(autouse=True)
def own_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CASTOR_URL", "CASTOR_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CASTOR_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("framework", ["lightning", "transformers"])
def test_a_trial_of_another_framework_goes_on_after_a_kill(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(framework)
    monkeypatch.syspath_prepend(str(FOLDER))
    example = importlib.import_module(f"{framework}_study")
    study = optuna.create_study(storage=f"sqlite:///{tmp_path}/study.db")
    killer = threading.Thread(target=kill_workers, args=(study, tmp_path, 1))
    killer.start()
    hpo.optimize(study, example.objective, n_trials=1, n_jobs=1)
    killer.join()
    (trial,) = study.trials
    assert sorted(trial.intermediate_values) == list(range(1, example.EPOCHS + 1))
    alone = example.objective(optuna.trial.FixedTrial(trial.params, number=trial.number))
    assert trial.value == pytest.approx(alone, rel=1e-4)


def square(trial: optuna.Trial) -> float:
    trial.set_user_attr("note", "kept")
    return trial.suggest_float("x", 0.0, 1.0) ** 2


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_mlflow_has_a_run_for_each_trial(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    integration = pytest.importorskip("optuna_integration")
    uri = f"sqlite:///{tmp_path}/runs.db"
    tracker = integration.MLflowCallback(tracking_uri=uri, metric_name="loss")
    study = optuna.create_study(study_name="tracked")
    hpo.optimize(study, square, n_trials=2, callbacks=[tracker])
    mlflow.set_tracking_uri(uri)
    runs = mlflow.search_runs(experiment_names=["tracked"], output_format="list")
    found = {run.info.run_name: (run.data.metrics["loss"], run.data.tags["note"]) for run in runs}
    assert found == {str(trial.number): (trial.value, "kept") for trial in study.trials}


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weights_and_biases_has_a_run_for_each_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    integration = pytest.importorskip("optuna_integration")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracker = integration.WeightsAndBiasesCallback(
        metric_name="loss", wandb_kwargs={"dir": str(tmp_path)}, as_multirun=True
    )
    study = optuna.create_study()
    hpo.optimize(study, square, n_trials=2, callbacks=[tracker])
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 2
