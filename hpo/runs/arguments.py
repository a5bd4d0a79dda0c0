"""Validation of the arguments of `hpo.optimize`; each error names its argument."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final

import optuna
from optuna.trial import FrozenTrial

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import InstanceBounds, JobSpec
from autoscaler.domain.job_rules import require_valid_job
from autoscaler.domain.objective import Objective as Goal
from autoscaler.domain.trial import WORKER_COMMAND
from autoscaler.spec.quantities import parse_duration
from hpo.driver.run_limits import ANY_ERROR, RunLimits, error_names

# Value of `budget_usd` that disables the deployment's default budget too.
_NO_BUDGET: Final = "none"

Callback = Callable[[optuna.Study, FrozenTrial], None]


def job_template(
    environment: Mapping[str, str] | None, offers: Iterable[str] | None, spot: bool, goal: Goal
) -> JobSpec:
    """Return the template of the trials' jobs.

    Raises:
        SpecError: an argument is invalid.
    """
    if not isinstance(goal, Goal):
        raise SpecError(f"{goal!r} is no Objective of autoscaler.domain.objective", "goal")
    variables = dict(environment or {})
    for name, value in variables.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise SpecError(f"{value!r} is no text: write str(...)", f"environment.{name}")
    offer_names = (offers,) if isinstance(offers, str) else offers
    template = JobSpec(
        name="trial",
        command=(),
        environment=variables,
        instances=InstanceBounds(1, 1, None if offer_names is None else tuple(offer_names), spot),
        objective=replace(goal, budget_usd=None, deadline_seconds=None),
    )
    require_valid_job(replace(template, command=WORKER_COMMAND))
    return template


def parse_run_limits(
    n_trials: int | None,
    n_jobs: int | None,
    timeout: float | None,
    catch: tuple[type[Exception], ...],
    retries: int,
) -> RunLimits:
    """Return the limits of a run.

    Raises:
        SpecError: an argument is invalid.
    """
    jobs = None if n_jobs is None else max(_whole(n_jobs, "n_jobs"), 0)
    trials = None if n_trials is None else _count(n_trials, "n_trials")
    try:
        is_time = timeout is None or timeout > 0
    except TypeError:
        is_time = False
    if not is_time:
        raise SpecError(f"{timeout!r} must be more than 0 seconds", "timeout")
    class_names = frozenset(name for error_class in catch for name in error_names(error_class))
    # Optuna's n_jobs=-1 means no limit.
    return RunLimits(trials, jobs or None, timeout, class_names, _count(retries, "retries"))


def with_max_failures(limits: RunLimits, max_failures: int | None) -> RunLimits:
    """Return limits that tolerate failed trials; an empty `catch` then covers any error.

    Raises:
        SpecError: the number is negative.
    """
    if max_failures is None:
        return limits
    count = _count(max_failures, "max_failures")
    return replace(limits, max_failures=count, catch=limits.catch or frozenset({ANY_ERROR}))


def parse_error_classes(
    catch: Iterable[type[Exception]] | type[Exception],
) -> tuple[type[Exception], ...]:
    """Return the error classes that fail their trial only.

    Raises:
        SpecError: an entry is no error class.
    """
    classes = (catch,) if isinstance(catch, type | str) else tuple(catch)
    for error_class in classes:
        if not (isinstance(error_class, type) and issubclass(error_class, Exception)):
            raise SpecError(
                f"{error_class!r} is no class of errors (a subclass of Exception)", "catch"
            )
    return classes


def parse_study_objective(
    goal: Goal, budget_usd: Decimal | float | str | None, deadline: str | float | None
) -> Goal:
    """Return the objective of the whole study: budget, deadline and weights.

    Raises:
        SpecError: budget or deadline is invalid.
    """
    seconds = goal.deadline_seconds if deadline is None else _deadline(deadline)
    return replace(
        goal,
        budget_usd=_budget(budget_usd, goal),
        is_uncapped=budget_usd == _NO_BUDGET or (goal.is_uncapped and budget_usd is None),
        deadline_seconds=seconds,
    )


def parse_callbacks(callbacks: Iterable[Callback] | None) -> tuple[Callback, ...]:
    """Return the callbacks as a tuple.

    Raises:
        SpecError: an entry is not callable.
    """
    if callbacks is None:
        return ()
    functions = tuple(callbacks) if isinstance(callbacks, Iterable) else (None,)
    if not all(map(callable, functions)):
        raise SpecError(f"{callbacks!r} is no list of functions", "callbacks")
    return functions


def existing_directory(files: str | Path) -> Path:
    """Return the directory that is sent to the instances.

    Raises:
        SpecError: the directory does not exist.
    """
    directory = Path(files)
    if not directory.is_dir():
        raise SpecError(f"{directory} is no directory", "files")
    return directory


def _whole(value: object, name: str) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]  # this is the check
    except TypeError:
        raise SpecError(f"{value!r} is no whole number", name) from None


def _count(value: object, name: str) -> int:
    count = _whole(value, name)
    if count < 0:
        raise SpecError(f"{count} is less than 0", name)
    return count


def _budget(usd: Decimal | float | str | None, goal: Goal) -> Decimal | None:
    """Return the budget in USD: `usd`, or that of `goal`; None for no budget."""
    if usd is None or usd == _NO_BUDGET:
        return goal.budget_usd if usd is None else None
    try:
        budget = Decimal(str(usd))
    except InvalidOperation:
        budget = Decimal(0)
    if not (budget.is_finite() and budget > 0):
        raise SpecError(f'{usd} is no amount above $0, nor "{_NO_BUDGET}"', "budget_usd")
    return budget


def _deadline(wanted: str | float) -> float:
    try:
        seconds = parse_duration(wanted) if isinstance(wanted, str) else float(wanted)
    except (ValueError, TypeError) as error:
        raise SpecError(str(error), "deadline") from None
    if not 0 < seconds < float("inf"):
        raise SpecError(f"{wanted} is no time from now", "deadline")
    return SystemClock().now() + seconds
