"""A study on a real local cloud: real instances, agents and workers, one of which is killed."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import optuna
import pytest
from optuna.artifacts import FileSystemArtifactStore, get_all_artifact_meta

import hpo
from autoscaler.cli.study.records import decisions_of, view_of
from autoscaler.domain.errors import SpecError, Unavailable
from hpo.runs.optimize import connect_to_study
from hpo.storage.controller_names import names_by_controller
from tests.hpo.kills import kill_workers
from tests.hpo.lines import records

STEPS = 6


def objective(trial: optuna.trial.BaseTrial) -> float:
    """A trial that takes long enough to be killed in."""
    import json

    start = trial.suggest_float("start", 0.0, 1.0)
    counts = {"sum": start}
    for step in hpo.epochs(trial, STEPS, {"counts": counts}):
        counts["sum"] += step
        trial.report(counts["sum"], step)
        time.sleep(0.3)
    if not isinstance(trial, optuna.Trial):  # beside the study there is nothing to bring back
        Path("best.json").write_text(json.dumps(counts))
        hpo.upload_artifact(trial, "best.json")
    return counts["sum"]


def study_of(storage: str | None = None) -> optuna.Study:
    return optuna.create_study(
        study_name="A real study!", storage=storage, sampler=optuna.samplers.RandomSampler(seed=2)
    )


def test_a_study_whose_worker_is_killed_is_what_it_is_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("CASTOR_URL", "CASTOR_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CASTOR_STATE", str(tmp_path / "no controller"))
    (tmp_path / "kept").mkdir()
    study, expected = study_of(f"sqlite:///{tmp_path}/study.db"), study_of()
    expected.optimize(objective, n_trials=2)
    ended: list[int] = []
    killer = threading.Thread(target=kill_workers, args=(study, tmp_path, 2))
    killer.start()
    hpo.optimize(
        study,
        objective,
        n_trials=2,
        n_jobs=1,
        callbacks=[lambda study, trial: ended.append(trial.number)],
        artifact_store=(store := FileSystemArtifactStore(tmp_path / "kept")),
    )
    killer.join()
    assert not [file for file in tmp_path.glob("no controller/**/*-wal") if file.stat().st_size]
    assert records(study) == records(expected)
    assert ended == [0, 1]
    for trial in study.trials:
        (meta,) = get_all_artifact_meta(trial, storage=study._storage)
        assert meta.filename == "best.json"
        assert json.load(store.open_reader(meta.artifact_id)) == {"sum": trial.value}
    job = study.trials[0].user_attrs["castor:job"]
    assert "start" in decisions_of(study.study_name, job, 20)[-1].reason
    view = view_of(study.study_name, names_by_controller(study))
    assert view is not None and view.driver is None and len(view.trials) == 2
    left = {path.name for path in tmp_path.glob("no controller/studies/*/*")}
    assert left - {"castor.db-shm", "castor.db-wal"} == {"castor.db", "jobs"}
    (kept,) = tmp_path.glob("no controller/**/*.checkpoint")
    assert kept.name.startswith(f"trial-{study.best_trial.number}-")


def test_who_speaks_to_a_study_that_nobody_runs_hears_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether there never was a controller of its own, or it has ended without a word."""
    monkeypatch.delenv("CASTOR_URL", raising=False)
    monkeypatch.setenv("CASTOR_STATE", str(tmp_path))
    told = "study sweep does not run here: castor study run continues it"
    with pytest.raises(Unavailable, match=told), connect_to_study("sweep", {}):
        pass
    (tmp_path / "studies" / "sweep").mkdir(parents=True)
    known = {"url": "http://127.0.0.1:1", "token": "t"}
    (tmp_path / "studies" / "sweep" / "client.json").write_text(json.dumps(known))
    with pytest.raises(Unavailable, match=told), connect_to_study("sweep", {}):
        pass
    monkeypatch.setenv("CASTOR_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("CASTOR_TOKEN", "t")
    with pytest.raises(Unavailable, match="no controller answers"), connect_to_study("sweep", {}):
        pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_trials": -1}, "n_trials: -1 is less than 0"),
        ({"timeout": 0.0}, "timeout: 0.0 must be more than 0 seconds"),
        ({"objective": 3}, "objective: 3 can't be called with a trial"),
        ({"n_trials": "5"}, "n_trials: '5' is no whole number"),
        ({"n_jobs": 1.5}, r"n_jobs: 1\.5 is no whole number"),
        ({"retries": -1}, "retries: -1 is less than 0"),
        ({"max_failures": -1}, "max_failures: -1 is less than 0"),
        ({"timeout": "4h"}, "timeout: '4h' must be more than 0 seconds"),
        ({"catch": "ValueError"}, "catch: 'ValueError' is no class of errors"),
        ({"catch": [int]}, "catch: <class 'int'> is no class of errors"),
        ({"callbacks": print}, "callbacks: <built-in function print> is no list of functions"),
        ({"callbacks": [3]}, r"callbacks: \[3\] is no list of functions"),
        ({"budget_usd": float("nan")}, "budget_usd: nan is no amount above"),
        ({"budget_usd": float("inf")}, "budget_usd: inf is no amount above"),
        ({"deadline": -3}, "deadline: -3 is no time from now"),
        ({"deadline": float("nan")}, "deadline: nan is no time from now"),
        ({"deadline": []}, "deadline: float"),
        ({"environment": {"A": 1}}, r"environment\.A: 1 is no text"),
        ({"environment": {"A=B": "1"}}, "environment.A=B: is not a valid variable name"),
        ({"offers": [""]}, "instances.offers"),
        ({"goal": "cheapest"}, "goal: 'cheapest' is no Objective"),
        ({"files": "/no/where"}, "files: /no/where is no directory"),
    ],
)
def test_bad_arguments_are_named_before_anything_begins(
    arguments: dict[str, object], message: str
) -> None:
    study = study_of()
    with pytest.raises(SpecError, match=message):
        hpo.optimize(study, **{"objective": objective, **arguments})  # type: ignore[arg-type]
    assert study.trials == []
