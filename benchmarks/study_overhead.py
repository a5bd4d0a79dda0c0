"""Overhead of `hpo.optimize` over `study.optimize` for short trials, as one table.

    python benchmarks/study_overhead.py [--trials 200] [--seconds 0.05] [--calls 60] [--json]

Both run here, one after the other, on SQLite with random search, and with a controller of the
study's own. `turn`: from an objective's last line to the first line of the next trial. `suggest`,
`report` and `should prune` (by the median pruner) are one call each. `fixed`: a call of one trial
that does nothing. The last row: short trials, two at once (`n_jobs=2`).
Wall times: on a busy machine only the ratios mean something, and these not much.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import optuna

import hpo
from hpo.objective.packaging import Objective

Run = Callable[..., None]


def probe(calls: int) -> Objective:
    """An objective that times its own calls of the trial, once each."""

    def objective(trial: optuna.trial.BaseTrial) -> float:
        import time

        times = {"first line": time.time()}

        def timed(name: str, call: Callable[[], object]) -> None:
            begun = time.perf_counter()
            call()
            times[name] = time.perf_counter() - begun

        timed("suggest", lambda: trial.suggest_float("x", 0.0, 1.0))
        timed("report", lambda: trial.report(0.5, 1))
        timed("should prune", trial.should_prune)
        trial.set_user_attr("times", {**times, "last line": time.time()})
        return 0.5

    return objective


def sleeper(seconds: float) -> Objective:
    """An objective of one parameter that does nothing for so long."""

    def objective(trial: optuna.trial.BaseTrial) -> float:
        import time

        value = trial.suggest_float("x", 0.0, 1.0)
        time.sleep(seconds)
        return value

    return objective


def study_in(directory: Path, name: str) -> optuna.Study:
    """A study of random search in SQLite."""
    return optuna.create_study(
        storage=f"sqlite:///{directory}/{name}.db",
        study_name=name,
        sampler=optuna.samplers.RandomSampler(seed=1),
        pruner=optuna.pruners.MedianPruner(),
    )


def call_times(study: optuna.Study, run: Run, calls: int) -> dict[str, float]:
    """Median seconds of a turn and of each call of a trial."""
    run(study, probe(calls), n_trials=calls, n_jobs=1)
    times = [trial.user_attrs["times"] for trial in study.trials]
    turns = [after["first line"] - before["last line"] for before, after in pairwise(times)]
    names = ("suggest", "report", "should prune")
    medians = {name: statistics.median(each[name] for each in times) for name in names}
    return {"turn": statistics.median(turns), **medians}


def wall_seconds(study: optuna.Study, run: Run, objective: Objective, trials: int) -> float:
    """Seconds of a call of so many trials, two at once."""
    begun = time.perf_counter()
    run(study, objective, n_trials=trials, n_jobs=2)
    return time.perf_counter() - begun


def measure(options: argparse.Namespace, directory: Path) -> dict[str, dict[str, float]]:
    """Seconds by row of the table: of Optuna alone, and of Castor."""
    runs: dict[str, Run] = {"optuna": optuna.Study.optimize, "castor": hpo.optimize}
    found: dict[str, dict[str, float]] = {}
    for name, run in runs.items():
        times = call_times(study_in(directory, f"calls-{name}"), run, options.calls)
        times["fixed"] = wall_seconds(study_in(directory, f"one-{name}"), run, sleeper(0.0), 1)
        short = study_in(directory, f"short-{name}")
        label = f"{options.trials} trials of {options.seconds:g} s"
        times[label] = wall_seconds(short, run, sleeper(options.seconds), options.trials)
        for row, seconds in times.items():
            found.setdefault(row, {})[name] = seconds
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("hpo").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as directory:
        os.environ.pop("CASTOR_URL", None)
        os.environ["CASTOR_STATE"] = f"{directory}/state"
        found = measure(options, Path(directory))
    if options.json:
        print(json.dumps({"load": os.getloadavg()[0], "seconds": found}))
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; seconds")
    print(f"{'':24} {'optuna':>9} {'castor':>9} {'ratio':>7}")
    for row, seconds in found.items():
        ratio = seconds["castor"] / seconds["optuna"]
        print(f"{row:24} {seconds['optuna']:9.4f} {seconds['castor']:9.4f} {ratio:7.1f}")


if __name__ == "__main__":
    main()
