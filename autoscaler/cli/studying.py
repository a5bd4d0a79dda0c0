"""What `castor study` does: a file to a study, its trials to a table."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from autoscaler.cli.live import print_whole
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import Unavailable
from autoscaler.domain.study import StudySpec
from autoscaler.spec.study_file import load_study


def run_file(file: Path, trials: int | None) -> None:
    """Run the study of a file, and print its best trial.

    Raises:
        CastorError: the file can't be used, or a trial failed.
    """
    spec, directory = load_study(file, SystemClock().now())
    optuna_side = _optuna_side()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("hpo").setLevel(logging.INFO)
    study = optuna_side.open_study(spec)
    from hpo.driver import Effort
    from hpo.running import Todo, run_study

    effort = Effort(
        trials or spec.trials, spec.at_once, spec.timeout_seconds, retries=spec.retries
    )
    objective = optuna_side.objective_of(spec, directory)
    todo = Todo(effort, spec.objective, shows_bar=True)
    run_study(study, objective, directory, spec.job, todo)
    print(_summary(spec, study))


def print_status(file: Path, as_json: bool) -> None:
    """Print the trials of a file's study."""
    spec, _ = load_study(file, SystemClock().now())
    study = _optuna_side().open_study(replace(spec, sampler=None, pruner=None))
    if as_json:
        print(json.dumps([_row(trial) for trial in study.trials], indent=2))
        return
    print(_summary(spec, study))
    table = Table("trial", "state", "value", "step", "parameters", "job", box=None)
    for trial in study.trials:
        row = _row(trial)
        values = " ".join(f"{value:.6g}" for value in row["values"] or [])
        parameters = ", ".join(f"{name}={_short(value)}" for name, value in row["params"].items())
        words = (row["number"], row["state"], values, row["step"], parameters, row["job"])
        table.add_row(*("" if word is None else str(word) for word in words))
    print_whole(table)


def stop_file(file: Path, now: bool) -> None:
    """Have the study of a file ended.

    Raises:
        CastorError: the file can't be used, or nobody runs the study.
    """
    spec, _ = load_study(file, SystemClock().now())
    _optuna_side()
    from hpo.running import stop_study

    stop_study(spec.name, now)
    rest = "its jobs end within seconds" if now else "the trials that run go on to their ends"
    print(f"{spec.name} begins no trial any more; {rest}")


def _optuna_side() -> Any:
    try:
        from hpo import study_file
    except ImportError as error:
        raise Unavailable(
            f"studies need Optuna ({error}): pip install 'castor-autoscaler[hpo]'"
        ) from None
    study_file.be_quiet()
    return study_file


def _summary(spec: StudySpec, study: Any) -> str:
    states = [trial.state.name.lower() for trial in study.trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    told = f"{spec.name}: {len(states)} trials" + (f" ({counts})" if counts else "")
    if len(study.directions) > 1 or "complete" not in states:
        return told
    best = study.best_trial
    parameters = ", ".join(f"{name}={_short(value)}" for name, value in best.params.items())
    return f"{told}; best is {best.value:.6g}, trial {best.number} with {parameters}"


def _row(trial: Any) -> dict[str, Any]:
    from hpo import attributes

    return {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "values": trial.values,
        "step": trial.last_step,
        "params": trial.params,
        "job": trial.user_attrs.get(attributes.JOB),
        "cause": trial.user_attrs.get(attributes.CAUSE),
    }


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
