"""Process that runs a study on cores of this machine until it is killed."""

from __future__ import annotations

import sys

import optuna

import hpo


def objective(trial: optuna.trial.BaseTrial) -> float:
    """Count for some seconds."""
    import time

    counts = {"sum": trial.suggest_float("start", 0.0, 1.0)}
    for step in hpo.epochs(trial, 12, {"counts": counts}):
        counts["sum"] += step
        trial.report(counts["sum"], step)
        time.sleep(0.5)
    return counts["sum"]


if __name__ == "__main__":
    study = optuna.create_study(study_name="killed", storage=sys.argv[1], load_if_exists=True)
    hpo.optimize(study, objective, n_trials=int(sys.argv[2]), n_jobs=1)
