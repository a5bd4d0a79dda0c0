"""Time between the end of one trial and the first line of the next, on the same instance.

    python benchmarks/trial_starts.py [--trials 12] [--seconds 3] [--imports torch] [--json]

A real study on a controller of its own, with one instance of local cores. The objective records
its beginning and end, Optuna the times of ask and tell, the controller the handover of the
instance, and the agent the start of the worker. Each trial has a process and a job of its own,
however short (`study_overhead.py` measures short trials that share a process). Times are
wall-clock times: run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import optuna

import hpo
from hpo.objective.packaging import Objective

PARTS = ("told", "asked", "handed over", "ordered", "first line", "whole turn")
STUDY = "starts"


def objective_of(seconds: float, imports: str) -> Objective:
    """Return an objective that imports a module and then sleeps for so many seconds."""

    def objective(trial: optuna.trial.BaseTrial) -> float:
        """Return the suggested value, and record the times in the trial's attributes."""
        import importlib
        import time

        trial.set_user_attr("begun", time.time())
        trial.set_user_attr("worked", time.process_time())
        importlib.import_module(imports)
        trial.set_user_attr("imported", time.time())
        value = trial.suggest_float("x", 0.0, 1.0)
        time.sleep(seconds)
        trial.set_user_attr("ended", time.time())
        return value

    return objective


@contextmanager
def controller(state: Path) -> Iterator[None]:
    """Run a controller on one core, with its address in the environment."""
    options = ("--state", str(state), "--port", "0", "--devices", "0", "--boot-seconds", "0")
    command = [sys.executable, "-P", "-m", "autoscaler.cli.app", "serve", *options]
    with (state / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        while not (state / "client.json").exists():
            time.sleep(0.1)
        client = json.loads((state / "client.json").read_text())
        os.environ["CASTOR_URL"], os.environ["CASTOR_TOKEN"] = client["url"], client["token"]
        yield
        while _instances(state):
            time.sleep(0.5)
    finally:
        process.terminate()
        process.wait()


def turns(study: optuna.Study, state: Path) -> list[dict[str, float]]:
    """Return the parts in seconds of each turn where a trial got the last one's instance."""
    handed_seconds = _numbers_by_name(
        state, "SELECT job, at_seconds FROM events WHERE kind = 'handed over'"
    )
    ordered_seconds = _numbers_by_name(state, "SELECT job, started_seconds FROM incarnations")
    rows = []
    for before, after in pairwise(study.trials):
        job = after.user_attrs["castor:job"]
        if job not in handed_seconds:
            continue
        times = (
            before.user_attrs["ended"],
            _timestamp(before.datetime_complete),
            _timestamp(after.datetime_start),
            handed_seconds[job],
            ordered_seconds[job],
            after.user_attrs["begun"],
        )
        parts = [later - earlier for earlier, later in pairwise(times)]
        rows.append(dict(zip(PARTS, (*parts, times[-1] - times[0]), strict=True)))
    if not rows:
        raise SystemExit(f"no trial got the instance of the one before:\n{_event_lines(state)}")
    return rows


def _event_lines(state: Path) -> str:
    """Return the controller's events, a line each."""
    with closing(sqlite3.connect(state / "castor.db")) as database:
        events = database.execute("SELECT at_seconds, job, kind, text FROM events").fetchall()
    return "\n".join(
        f"{at_seconds:.2f} {job}: {kind}: {text}" for at_seconds, job, kind, text in events
    )


def _timestamp(moment: object) -> float:
    """Return a date and time as seconds since the epoch."""
    assert hasattr(moment, "timestamp")
    return float(moment.timestamp())


def _numbers_by_name(state: Path, query: str) -> dict[str, float]:
    """Return the rows of a query of the controller's database as name -> number."""
    with closing(sqlite3.connect(state / "castor.db")) as database:
        return dict(database.execute(query).fetchall())


def _instances(state: Path) -> dict[str, float]:
    """Return the request times of instances that have not ended, by id."""
    return _numbers_by_name(
        state, "SELECT id, requested_seconds FROM instances WHERE phase <> 'ended'"
    )


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of each trial")
    parser.add_argument("--imports", default="torch", help="module that the objective imports")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.trials < 2:
        parser.error("--trials: at least 2, since a turn lies between two trials")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory(prefix="castor-starts-") as scratch:
        state = Path(scratch)
        state.chmod(0o755)
        study = optuna.create_study(study_name=STUDY)
        with controller(state):
            objective = objective_of(arguments.seconds, arguments.imports)
            hpo.optimize(
                study, objective, n_trials=arguments.trials, n_jobs=1, gc_after_trial=True
            )
            first = study.trials[0]
            boot_seconds = first.user_attrs["begun"] - _timestamp(first.datetime_start)
        rows = turns(study, state)
    imports = [trial.user_attrs["imported"] - trial.user_attrs["begun"] for trial in study.trials]
    if arguments.json:
        print(json.dumps({"first": boot_seconds, "imports": imports, "turns": rows}))
        return
    print(
        f"first trial, from ask to its first line: {boot_seconds:.2f} s, then {imports[0]:.2f} s"
    )
    processor_ms = 1000 * statistics.median(
        trial.user_attrs["worked"] for trial in study.trials[1:]
    )
    print(f"the others: imports {1000 * statistics.median(imports[1:]):.0f} ms")
    print(f"processor time of a warm worker before its first line: {processor_ms:.0f} ms")
    print(f"{len(rows)} turns on a warm instance, ms:   median   least    most")
    for part in PARTS:
        values = sorted(1000 * turn[part] for turn in rows)
        print(
            f"  to {part:24} {statistics.median(values):14.0f} {values[0]:7.0f} {values[-1]:7.0f}"
        )


if __name__ == "__main__":
    main()
