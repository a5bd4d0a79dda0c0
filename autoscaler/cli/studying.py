"""What `castor study` does: a file to a study, its trials to a table."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from autoscaler.cli.live import print_whole
from autoscaler.cli.study_facts import (
    money_line,
    shortened,
    spent_words,
    study_facts,
    summary,
    trial_facts,
)
from autoscaler.cli.tables import money, print_decisions
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import CastorError, NotFound, SpecError, Unavailable
from autoscaler.domain.study import StudySpec
from autoscaler.spec.quantities import parse_money
from autoscaler.spec.study_file import load_study


class StudyMethodFailed(CastorError):
    """An error that a study's sampler or pruner raised."""


def run_file(file: Path, trials: int | None, is_quiet: bool = False) -> None:
    """Run the study of a file, and print its best trial.

    Raises:
        CastorError: the file can't be used, a trial failed that is not tolerated, or no trial of
            this run ended well.
    """
    spec, directory = load_study(file, SystemClock().now())
    optuna_side = require_optuna()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("hpo").setLevel(logging.INFO)
    logging.getLogger("hpo.ended").setLevel(logging.WARNING if is_quiet else logging.INFO)
    from hpo.arguments import tolerating
    from hpo.blame import origin_of
    from hpo.catching import catch_of
    from hpo.effort import Effort
    from hpo.endings import ended_trials, require_result
    from hpo.running import Todo, run_study
    from hpo.totals import totals_of

    objective = optuna_side.objective_of(spec, directory)
    catch = catch_of(spec.catch)
    effort = Effort(trials, spec.at_once, spec.timeout_seconds, catch.names, spec.retries)
    effort = tolerating(effort, spec.max_failures)
    study = optuna_side.open_study(spec)  # after the checks: it makes a storage
    if trials is None and spec.trials is not None:
        totals = totals_of(study)
        effort = replace(effort, trials=totals.to_begin(spec.trials))
        if not (effort.trials or totals.open):
            print(summary(spec, study))
            print(
                f"nothing is left to run: trials is {spec.trials} in {file}; raise it, or begin "
                "more with --trials"
            )
            return
    todo = Todo(
        effort,
        spec.objective,
        shows_bar=not is_quiet,
        artifact_store=optuna_side.artifact_store_of(spec),
        keeps_checkpoints=spec.keep_checkpoints,
    )
    ended_before = ended_trials(study)
    try:
        run_study(study, catch.checking(objective), directory, spec.job, todo)
    except CastorError:
        if ended_trials(study) != ended_before:
            print(summary(spec, study))
        raise
    except Exception as error:
        origin = origin_of(error, study)
        if origin is None:
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise StudyMethodFailed(f"{origin}, failed: {said}") from error
    print(summary(spec, study))
    require_result(study, ended_before)


def print_status(file: Path, as_json: bool) -> None:
    """Print the trials of a file's study, its money and its driver."""
    from autoscaler.cli.study_records import view_of

    spec, study = open_recorded(file)
    view = view_of(spec.name, require_optuna().names_of(study))
    if as_json:
        print(json.dumps(study_facts(spec, study, view), indent=2))
        return
    print(summary(spec, study))
    if view is not None:
        print(money_line(view))
    table = Table("trial", "state", "value", "step", "parameters", "job", box=None)
    for trial in study.trials:
        facts = trial_facts(trial)
        values = " ".join(f"{value:.6g}" for value in facts["values"] or [])
        parameters = ", ".join(
            f"{name}={shortened(value)}" for name, value in facts["params"].items()
        )
        words = (facts["number"], facts["state"], values, facts["step"], parameters, facts["job"])
        table.add_row(*("" if word is None else str(word) for word in words))
    print_whole(table)


def explain(file: Path, trial: int, number: int, as_json: bool) -> None:
    """Print what was decided for a trial of a file's study.

    Raises:
        CastorError: the file can't be used, there is no such trial, or what was decided for it is
            not known here.
    """
    spec, study = open_recorded(file)
    if not 0 <= trial < len(study.trials):
        raise NotFound(f"trial {trial}: {spec.name} has {len(study.trials)}, counted from 0")
    job = trial_facts(study.trials[trial])["job"]
    if job is None:
        raise NotFound(f"trial {trial} of {spec.name} was not run by Castor")
    from autoscaler.cli.study_records import decisions_of

    print_decisions(decisions_of(spec.name, job, number), f"trial {trial}", as_json)


def set_budget(file: Path, budget: str) -> None:
    """Let the study of a file cost so much, whether it runs or not.

    Raises:
        CastorError: the file or the amount can't be used, or the study has never been run here.
    """
    try:
        budget_usd = parse_money(budget)
    except ValueError as error:
        raise SpecError(str(error), "budget") from None
    spec, _ = load_study(file, SystemClock().now())
    names = require_optuna().recorded_names(spec)
    from autoscaler.cli.study_records import command_budget

    view = command_budget(spec.name, names, budget_usd)
    print(f"{spec.name} may cost {money(budget_usd)}; it has cost {spent_words(view)}")
    own_usd = spec.objective.budget_usd
    if view.driver is None and own_usd is not None and own_usd > budget_usd:
        print(f"its next run has the {money(own_usd)} of {file}: write the smaller budget there")


def stop_file(file: Path, now: bool) -> None:
    """Have the study of a file ended.

    Raises:
        CastorError: the file can't be used, or nobody runs the study.
    """
    spec, _ = load_study(file, SystemClock().now())
    names = require_optuna().recorded_names(spec)
    from hpo.running import line_to

    with line_to(spec.name, names) as (_, line):
        line.stop(now)
    rest = "its jobs end within seconds" if now else "the trials that run go on to their ends"
    print(f"{spec.name} begins no trial any more; {rest}")


def open_recorded(file: Path) -> tuple[StudySpec, Any]:
    """The study of a file as its storage has it, to be read only.

    Raises:
        CastorError: the file can't be used, or the storage.
    """
    spec, _ = load_study(file, SystemClock().now())
    return spec, require_optuna().recorded_study(spec)


def require_optuna() -> Any:
    """The part that knows Optuna.

    Raises:
        Unavailable: it is not installed.
    """
    try:
        from hpo import study_file
    except ImportError as error:
        raise Unavailable(
            f"studies need Optuna ({error}): pip install 'castor-autoscaler[hpo]'"
        ) from None
    study_file.be_quiet()
    return study_file
