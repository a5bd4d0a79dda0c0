"""Reasons for which a run of a study ends early."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import optuna
from optuna.trial import TrialState

from autoscaler.domain.errors import CastorError
from autoscaler.domain.job import StopReason
from autoscaler.domain.plan import ReasonCode
from autoscaler.wire.messages import JobView
from hpo.driver.ended_trials import failure_cause

_log = logging.getLogger(__name__)

_NEVER_BEGINS = {ReasonCode.BEYOND_BUDGET, ReasonCode.BEYOND_DEADLINE}


class NothingRan(CastorError):
    """No trial can begin, and none has ended in this run."""


class DeadlineReached(CastorError):
    """The deadline lets no open trial begin; the trials stay open."""


class StudyStopped(CastorError):
    """A user has stopped the study and its running trials; the next run continues them."""


class AllTrialsFailed(CastorError):
    """Every trial that ended in this run failed."""


class BudgetUsedUp(CastorError):
    """The study's budget is used up; its trials stay open."""


def require_budget(view: JobView | None) -> None:
    """Check that a trial's job was not ended by the study's budget.

    Raises:
        BudgetUsedUp: the budget ended the job; the trial stays open.
    """
    if view is not None and view.stop_reason is StopReason.STUDY_BUDGET:
        raise BudgetUsedUp(
            f"{view.cause} with a larger one (the objective's budget in its file, or budget_usd=)"
        )


def ended_trial_numbers(study: optuna.Study) -> frozenset[int]:
    """Return the numbers of the ended trials."""
    trials = study.get_trials(deepcopy=False)
    return frozenset(trial.number for trial in trials if trial.state.is_finished())


def require_result(study: optuna.Study, ended_before: frozenset[int]) -> None:
    """Check that a run has ended at least one trial without a failure.

    Args:
        study: the study after the run.
        ended_before: numbers of the trials that had ended before the run.

    Raises:
        NothingRan: no trial has ended in the run.
        AllTrialsFailed: every trial that ended in the run failed.
    """
    trials = [study.trials[number] for number in sorted(ended_trial_numbers(study) - ended_before)]
    if not trials:
        raise NothingRan("no trial has ended in this run: see its log, deadline and timeout")
    if all(trial.state is TrialState.FAIL for trial in trials):
        trials_text = "the only trial" if len(trials) == 1 else f"all {len(trials)} trials"
        last_text = "" if len(trials) == 1 else "; the last"
        raise AllTrialsFailed(
            f"{trials_text} of this run failed{last_text}: {failure_cause(trials[-1])}"
        )


def planner_warning(views: Iterable[JobView]) -> str | None:
    """Return the planner's note on an unattainable goal of the study; None without one."""
    notes = (view.decision.note for view in views if view.decision is not None)
    return next((note for note in notes if note), None)


def is_blocked_by_deadline(
    views: Sequence[JobView | None], has_run: bool, ends_at_deadline: bool = False
) -> bool:
    """Return whether the run ends because the deadline lets no remaining trial begin.

    Args:
        views: the jobs of all open trials.
        has_run: whether a trial has ended in this run.
        ends_at_deadline: whether the study ends at its deadline (`after_deadline: stop`).

    Raises:
        BudgetUsedUp: the budget lets no trial begin.
        DeadlineReached: the deadline lets no trial begin, and the study does not end at it.
        NothingRan: the deadline lets no trial begin, and none has ended in this run.
    """
    waiting = [view for view in views if view is not None and not view.instances]
    decisions = [view.decision for view in waiting if view.decision is not None]
    grounds = {decision.ground for decision in decisions}
    if not views or len(decisions) < len(views) or not grounds <= _NEVER_BEGINS:
        return False
    reason = decisions[0].reason
    if ReasonCode.BEYOND_BUDGET in grounds:
        raise BudgetUsedUp(f"{reason}: raise the budget of the study to continue its trials")
    if not has_run:
        raise NothingRan(f"no trial has run: {reason}: set a later deadline, or none")
    if not ends_at_deadline:
        trials_text = "a trial" if len(views) == 1 else f"{len(views)} trials"
        raise DeadlineReached(
            f"{trials_text} can't begin before the deadline: {reason}: set a later one, or none, "
            "and run the study again"
        )
    _log.warning("the study ends here: %s", reason)
    return True
