"""The state of a study's own controller."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import optuna
from optuna.trial import TrialState

SCRIPT = Path(__file__).parents[1] / "scripts" / "one_trial.py"


def run_one_trial(state: Path, *storage: str) -> None:
    environment = {**os.environ, "CASTOR_STATE": str(state)}
    environment.pop("CASTOR_URL", None)
    subprocess.run([sys.executable, str(SCRIPT), *storage], env=environment, check=True)


def test_a_study_in_memory_leaves_no_state(tmp_path: Path) -> None:
    run_one_trial(tmp_path)
    assert list((tmp_path / "studies").iterdir()) == []
    assert set(tmp_path.iterdir()) == {tmp_path / "studies"}


def test_a_finished_study_goes_on_with_its_database(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/study.db"
    for _ in range(2):
        run_one_trial(tmp_path / "state", storage)
    study = optuna.load_study(study_name="swept", storage=storage)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 2
    (state,) = (tmp_path / "state" / "studies").iterdir()
    assert not (state / "secret.key").exists()
