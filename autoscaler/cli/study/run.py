"""Implementation of `castor study`: run, status, why, budget and stop."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from autoscaler.cli.live import print_whole
from autoscaler.cli.study.facts import (
    TrialCosts,
    money_line,
    spent_words,
    study_facts,
    summary,
    trial_facts,
)
from autoscaler.cli.study.tables import trials_table
from autoscaler.cli.tables import money, print_decisions
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import CastorError, NotFound, SpecError, Unavailable
from autoscaler.domain.study import StudySpec
from autoscaler.spec.quantities import parse_money
from autoscaler.spec.study_file import load_study


class StudyMethodFailed(CastorError):
    """Error raised by a study's sampler or pruner."""


def run_file(file: Path, trials: int | None, is_quiet: bool = False) -> None:
    """Run the study of a file, and print its best trial.

    Args:
        file: the study file.
        trials: number of additional trials; None: the rest of the file's total.
        is_quiet: print no progress bar, and no line for each trial.

    Raises:
        CastorError: the file can't be used, more trials failed than are tolerated, or no trial of
            this run completed.
    """
    spec, directory = load_study(file, SystemClock().now())
    optuna_side = require_optuna()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("hpo").setLevel(logging.INFO)
    ended_log = logging.getLogger("hpo.driver.ended_trials")
    ended_log.setLevel(logging.WARNING if is_quiet else logging.INFO)
    from hpo.driver.error_origin import error_origin
    from hpo.driver.run_limits import RunLimits
    from hpo.driver.study_end import ended_trial_numbers, require_result
    from hpo.runs.arguments import with_max_failures
    from hpo.runs.optimize import RunOptions, run_study
    from hpo.storage.trial_counts import count_trials
    from hpo.study_file.catch import resolve_caught_errors

    objective = optuna_side.load_objective(spec, directory)
    catch = resolve_caught_errors(spec.catch)
    limits = RunLimits(trials, spec.at_once, spec.timeout_seconds, catch.names, spec.retries)
    limits = with_max_failures(limits, spec.max_failures)
    study = optuna_side.open_study(spec)  # after the checks, because it creates the storage
    if trials is None and spec.trials is not None:
        totals = count_trials(study)
        limits = replace(limits, trials=totals.to_begin(spec.trials))
        if not (limits.trials or totals.open):
            print(summary(spec, study))
            print(
                f"no trial is left to run: trials is {spec.trials} in {file}; raise it, or add "
                "trials with --trials"
            )
            return
    options = RunOptions(
        limits,
        spec.objective,
        shows_bar=not is_quiet,
        artifact_store=optuna_side.open_artifact_store(spec),
        keeps_checkpoints=spec.keep_checkpoints,
    )
    ended_before = ended_trial_numbers(study)
    try:
        run_study(study, catch.checking(objective), directory, spec.job, options)
    except CastorError:
        if ended_trial_numbers(study) != ended_before:
            print(summary(spec, study))
        raise
    except Exception as error:
        origin = error_origin(error, study)
        if origin is None:
            raise
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise StudyMethodFailed(f"{origin}, failed: {message}") from error
    print(summary(spec, study))
    require_result(study, ended_before)


def print_status(file: Path, as_json: bool) -> None:
    """Print the best trial, spending, driver and all trials of a file's study."""
    from autoscaler.cli.study.records import job_costs_of, view_of

    spec, study = open_recorded(file)
    names = require_optuna().names_by_controller(study)
    view = view_of(spec.name, names)
    costs = TrialCosts.of(view, {} if view is None else job_costs_of(spec.name, names))
    if as_json:
        print(json.dumps(study_facts(spec, study, view, costs), indent=2))
        return
    print(summary(spec, study))
    if view is not None:
        print(money_line(view))
    print_whole(trials_table(study, costs))


def explain(file: Path, trial: int, number: int, as_json: bool) -> None:
    """Print the last `number` decisions for a trial of a file's study.

    Raises:
        CastorError: the file can't be used, there is no such trial, or no controller here has its
            decisions.
    """
    spec, study = open_recorded(file)
    if not 0 <= trial < len(study.trials):
        raise NotFound(f"trial {trial}: {spec.name} has {len(study.trials)} trials, from number 0")
    job = trial_facts(study.trials[trial])["job"]
    if job is None:
        raise NotFound(f"trial {trial} of {spec.name} was not run by Castor")
    from autoscaler.cli.study.records import decisions_of

    print_decisions(decisions_of(spec.name, job, number), f"trial {trial}", as_json)


def set_budget(file: Path, budget: str) -> None:
    """Set the budget of a file's study, in US dollars, and print it.

    Raises:
        CastorError: the file or the amount can't be used, or the study has never run here.
    """
    try:
        budget_usd = parse_money(budget)
    except ValueError as error:
        raise SpecError(str(error), "budget") from None
    name, names, file_usd = _study_of(file)
    from autoscaler.cli.study.records import command_budget

    view = command_budget(name, names, budget_usd)
    print(f"{name}: budget {money(budget_usd)}, spent {spent_words(view)}")
    if view.driver is None and file_usd is not None and file_usd > budget_usd:
        print(f"the next run uses the larger {money(file_usd)} of {file}: lower it there, too")


def stop_file(file: Path, now: bool) -> None:
    """Stop the study of a file; `now` stops its running trials, too.

    Raises:
        CastorError: the file can't be used, or the study is not running.
    """
    name, names, _ = _study_of(file)
    from hpo.runs.optimize import connect_to_study

    with connect_to_study(name, names) as (_, study_client):
        study_client.stop(now)
    rest = "its jobs end within seconds" if now else "running trials continue to their ends"
    print(f"{name} starts no more trials; {rest}")


def _study_of(file: Path) -> tuple[str, Mapping[str, str], Decimal | None]:
    """Return name, names by controller and budget of the study of a file.

    Where there is no such file, its text is the name of a study, as `castor study list` has it:
    its controller knows the rest.

    Raises:
        CastorError: the file can't be used.
    """
    opening = require_optuna()
    from autoscaler.cli.study.records import name_of

    if not file.exists() and name_of(str(file)) == str(file):
        return str(file), {}, None
    spec, _ = load_study(file, SystemClock().now())
    return spec.name, opening.recorded_names(spec), spec.objective.budget_usd


def open_recorded(file: Path) -> tuple[StudySpec, Any]:
    """Return the spec of a study file and Optuna's recorded study, for reading only.

    Raises:
        CastorError: the file or the storage can't be used.
    """
    spec, _ = load_study(file, SystemClock().now())
    return spec, require_optuna().load_recorded_study(spec)


def require_optuna() -> Any:
    """Return the module `hpo.study_file.study_opening`, with Optuna's own log messages off.

    Raises:
        Unavailable: Optuna is not installed.
    """
    try:
        from hpo.study_file import study_opening
    except ImportError as error:
        raise Unavailable(
            f"studies need Optuna ({error}): pip install 'castor-autoscaler[hpo]'"
        ) from None
    study_opening.silence_optuna()
    return study_opening
