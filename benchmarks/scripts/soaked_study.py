"""Study of the fleet's soak: trials of some seconds; continues from its storage.

python soaked_study.py STORAGE_URL TRIALS PAUSE_SECONDS
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import optuna

import hpo

STEPS = 8
SEED = 2


def objective_with(pause_seconds: float) -> Callable[[optuna.trial.BaseTrial], float]:
    """Return an objective that waits so long after each step."""

    def objective(trial: optuna.trial.BaseTrial) -> float:
        start = trial.suggest_float("start", 0.0, 1.0)
        counts = {"sum": start}
        for step in hpo.epochs(trial, STEPS, {"counts": counts}):
            counts["sum"] += step
            trial.report(counts["sum"], step)
            time.sleep(pause_seconds)
        return counts["sum"]

    return objective


def study_at(storage_url: str | None) -> optuna.Study:
    """Create the study, or open it where it exists."""
    return optuna.create_study(
        study_name="soak",
        storage=storage_url,
        sampler=optuna.samplers.RandomSampler(seed=SEED),
        load_if_exists=True,
    )


def main() -> None:
    """Run the study on the controller that the environment names."""
    storage_url, trials, pause_seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    hpo.optimize(
        study_at(storage_url), objective_with(pause_seconds), n_trials=trials, retries=100
    )


if __name__ == "__main__":
    main()
