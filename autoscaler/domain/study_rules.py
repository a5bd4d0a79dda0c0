"""Validation of studies, the same for files and requests.

Errors name fields as study files do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import JobSpec
from autoscaler.domain.job_rules import (
    MOST_EXAMPLES,
    MOST_INSTANCES,
    MOST_RETRIES,
    require_program,
    require_settable_objective,
    require_valid_job,
    require_valid_objective,
)
from autoscaler.domain.rules import (
    require_at_most,
    require_count,
    require_line,
    require_number,
    require_positive,
)
from autoscaler.domain.study import StudySpec
from autoscaler.domain.terms import StudyTerms, TrialProgress
from autoscaler.domain.text import quoted
from autoscaler.domain.trial import GivenAnswer, TrialCall, TrialEnd

MOST_TRIALS: Final = 1_000_000
LONGEST_STUDY_SECONDS: Final = 1e9
MOST_NUMBER: Final = 1 << 53
LONGEST_CAUSE: Final = 2_000
_MOST_RUNGS: Final = 1_000
_DIRECTIONS: Final = ("minimize", "maximize")
_MOST_PARAMETERS: Final = 1_000
_MOST_DIRECTIONS: Final = 10


def require_valid_study(study: StudySpec) -> None:
    """Check everything in a study's file.

    Raises:
        SpecError: a value is invalid; its `field` is the key of the study file.
    """
    require_line(study.name, "name")
    require_valid_objective(study.objective)
    if study.function is None:
        require_program(study.command, "command")
    if study.trials is not None:
        require_count(study.trials, "trials", MOST_TRIALS)
    if study.at_once is not None:
        require_count(study.at_once, "at_once", MOST_INSTANCES)
    if study.timeout_seconds is not None:
        require_positive(study.timeout_seconds, "timeout", LONGEST_STUDY_SECONDS)
    require_count(study.retries, "retries", MOST_RETRIES, least=0)
    require_at_most(len(study.space), "space", _MOST_PARAMETERS)
    require_at_most(len(study.directions), "direction", _MOST_DIRECTIONS)
    try:
        require_valid_job(replace(study.job, study=None))
    except SpecError as error:
        raise SpecError(error.message, f"job.{error.field}") from None


def require_valid_statement(terms: StudyTerms, trials: Sequence[TrialProgress]) -> None:
    """Check a driver's statement of its study and the trials.

    Values that an objective reported may be any numbers and are not checked.

    Raises:
        SpecError: a value is invalid; its `field` is the statement's.
    """
    require_settable_objective(terms.objective)
    require_valid_objective(terms.objective)
    require_count(len(terms.directions), "terms.directions", _MOST_DIRECTIONS)
    for direction in terms.directions:
        if direction not in _DIRECTIONS:
            raise SpecError(f"must be minimize or maximize, not {quoted(direction)}", "directions")
    if terms.to_begin is not None:
        require_count(terms.to_begin, "terms.to_begin", MOST_NUMBER, least=0)
    for name, count in (("under_way", terms.under_way), ("ended", terms.ended)):
        if count is not None:
            require_count(count, f"terms.{name}", MOST_NUMBER, least=0)
    if terms.full_work is not None:
        require_positive(terms.full_work, "terms.full_work", MOST_EXAMPLES)
    require_at_most(len(terms.later), "terms.later", _MOST_RUNGS)
    for rung in terms.later:
        require_count(rung.trials, "terms.later.trials", MOST_NUMBER, least=0)
        require_number(rung.work, "terms.later.work", 0.0, MOST_EXAMPLES)
    for trial in trials:
        _require_valid_progress(trial)


def _require_valid_progress(trial: TrialProgress) -> None:
    require_line(trial.job, "trials.job")
    require_number(trial.progress, "trials.progress", 0.0, MOST_EXAMPLES)
    if trial.decided_at is not None:
        require_number(trial.decided_at, "trials.decided_at", 0.0, MOST_EXAMPLES)
    for progress, _ in trial.reports:
        require_number(progress, "trials.reports", 0.0, MOST_EXAMPLES)
    for result in trial.results:
        require_count(result.number, "trials.results.number", MOST_NUMBER, least=0)
        if result.seconds is not None:
            require_number(result.seconds, "trials.results.seconds", 0.0, LONGEST_STUDY_SECONDS)


def require_valid_answers(answers: Sequence[GivenAnswer], ended: Sequence[TrialEnd]) -> None:
    """Check a driver's answers to calls of trials, and the ends of trials.

    Raises:
        SpecError: as `require_valid_statement`.
    """
    for given in answers:
        require_line(given.job, "answers.job")
        require_count(given.incarnation, "answers.incarnation", MOST_NUMBER)
        require_count(given.answer.number, "answers.answer.number", MOST_NUMBER)
    for end in ended:
        require_line(end.job, "ended.job")
        if end.cause is not None:
            require_line(end.cause, "ended.cause", LONGEST_CAUSE)


def require_valid_driver(driver: str | None, spec: JobSpec) -> None:
    """Check the driver that submits or stops a job; None is no driver.

    Raises:
        SpecError: the name is no line of text, or the job has no study.
    """
    if driver is None:
        return
    require_line(driver, "driver")
    if spec.study is None:
        raise SpecError(f"job {spec.name} is in no study: leave the driver out", "driver")


def require_valid_calls(incarnation: int, calls: Sequence[TrialCall]) -> None:
    """Check the numbers of a trial's calls.

    Raises:
        SpecError: as `require_valid_statement`.
    """
    require_count(incarnation, "incarnation", MOST_NUMBER)
    for call in calls:
        require_count(call.number, "calls.number", MOST_NUMBER)
