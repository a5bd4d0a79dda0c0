"""Arguments of `hpo.optimize`, checked before anything begins; each error names its argument."""

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
from hpo.driver.run_limits import ANY_ERROR, Effort, error_names

# What `budget_usd` says to have no budget, not even the default one of the deployment.
_NO_BUDGET: Final = "none"

Callback = Callable[[optuna.Study, FrozenTrial], None]


def template_of(
    environment: Mapping[str, str] | None, offers: Iterable[str] | None, spot: bool, goal: Goal
) -> JobSpec:
    """Return the job that each trial's job is made like.

    Raises:
        SpecError: an argument can't be used.
    """
    if not isinstance(goal, Goal):
        raise SpecError(f"{goal!r} is no Objective of autoscaler.domain.objective", "goal")
    variables = dict(environment or {})
    for name, value in variables.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise SpecError(f"{value!r} is no text: write str(...)", f"environment.{name}")
    named = (offers,) if isinstance(offers, str) else offers
    template = JobSpec(
        name="trial",
        command=(),
        environment=variables,
        instances=InstanceBounds(1, 1, None if named is None else tuple(named), spot),
        objective=replace(goal, budget_usd=None, deadline_seconds=None),
    )
    require_valid_job(replace(template, command=WORKER_COMMAND))
    return template


def effort_of(
    n_trials: int | None,
    n_jobs: int | None,
    timeout: float | None,
    catch: tuple[type[Exception], ...],
    retries: int,
) -> Effort:
    """Return what a call is to do.

    Raises:
        SpecError: an argument can't be used.
    """
    jobs = None if n_jobs is None else max(_whole(n_jobs, "n_jobs"), 0)
    trials = None if n_trials is None else _count(n_trials, "n_trials")
    try:
        is_time = timeout is None or timeout > 0
    except TypeError:
        is_time = False
    if not is_time:
        raise SpecError(f"{timeout!r} must be more than 0 seconds", "timeout")
    kinds = frozenset(name for kind in catch for name in error_names(kind))
    # Optuna's n_jobs=-1 is as many as there are.
    return Effort(trials, jobs or None, timeout, kinds, _count(retries, "retries"))


def tolerating(effort: Effort, max_failures: int | None) -> Effort:
    """Return the effort with so many failed trials tolerated, of any error if `catch` is empty.

    Raises:
        SpecError: the number is negative.
    """
    if max_failures is None:
        return effort
    most = _count(max_failures, "max_failures")
    return replace(effort, max_failures=most, catch=effort.catch or frozenset({ANY_ERROR}))


def classes_of(catch: Iterable[type[Exception]] | type[Exception]) -> tuple[type[Exception], ...]:
    """Return the classes of errors that fail their trial only.

    Raises:
        SpecError: one is none.
    """
    kinds = (catch,) if isinstance(catch, type | str) else tuple(catch)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise SpecError(f"{kind!r} is no class of errors (a subclass of Exception)", "catch")
    return kinds


def goal_of(
    goal: Goal, budget_usd: Decimal | float | str | None, deadline: str | float | None
) -> Goal:
    """Return what the whole study is to come to.

    Raises:
        SpecError: budget or deadline can't be used.
    """
    seconds = goal.deadline_seconds if deadline is None else _deadline(deadline)
    return replace(
        goal,
        budget_usd=_budget(budget_usd, goal),
        is_uncapped=budget_usd == _NO_BUDGET or (goal.is_uncapped and budget_usd is None),
        deadline_seconds=seconds,
    )


def callbacks_of(callbacks: Iterable[Callback] | None) -> tuple[Callback, ...]:
    """Return the callbacks.

    Raises:
        SpecError: they are no list of what can be called.
    """
    if callbacks is None:
        return ()
    found = tuple(callbacks) if isinstance(callbacks, Iterable) else (None,)
    if not all(map(callable, found)):
        raise SpecError(f"{callbacks!r} is no list of functions", "callbacks")
    return found


def directory_of(files: str | Path) -> Path:
    """Return the directory that goes to the instances.

    Raises:
        SpecError: there is no such directory.
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
    """Return the budget of the whole study; that of `goal` unless `usd` is given."""
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
