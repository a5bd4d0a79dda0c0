"""Process whose study is in memory."""

from __future__ import annotations

import os
from pathlib import Path

import optuna

import hpo


def objective(trial: optuna.trial.BaseTrial) -> float:
    """Return what was suggested."""
    return trial.suggest_float("x", 0.0, 1.0)


if __name__ == "__main__":
    study = optuna.create_study(study_name="swept")
    hpo.optimize(study, objective, n_trials=1)
    (trial,) = study.trials
    assert trial.value == trial.params["x"]
    (state,) = Path(os.environ["CASTOR_STATE"], "studies").iterdir()
    assert (state / "castor.db").exists()
