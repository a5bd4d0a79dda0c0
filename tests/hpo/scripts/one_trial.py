"""Process that runs one trial of a study in the storage of its argument, or in memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import optuna

import hpo


def objective(trial: optuna.trial.BaseTrial) -> float:
    """Return what was suggested."""
    return trial.suggest_float("x", 0.0, 1.0)


if __name__ == "__main__":
    storage = sys.argv[1] if len(sys.argv) > 1 else None
    study = optuna.create_study(study_name="swept", storage=storage, load_if_exists=True)
    hpo.optimize(study, objective, n_trials=1)
    trial = study.trials[-1]
    assert trial.value == trial.params["x"]
    (state,) = Path(os.environ["CASTOR_STATE"], "studies").iterdir()
    assert (state / "castor.db").exists()
