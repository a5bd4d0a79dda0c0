"""Why a study ends before its effort is made: what its jobs tell of that."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import optuna
from optuna.trial import TrialState

from autoscaler.domain.errors import CastorError
from autoscaler.domain.plan import BEYOND_BUDGET, BEYOND_DEADLINE
from autoscaler.domain.terms import budget_used_up
from autoscaler.wire.messages import JobView
from hpo.driver.ended_trials import cause_of

_log = logging.getLogger(__name__)


class NothingRan(CastorError):
    """A study can't begin any trial, and none has ended in this run."""


class DeadlineReached(CastorError):
    """A study whose deadline lets none of its open trials begin; they run when it is later."""


class StudyStopped(CastorError):
    """Somebody has stopped the study, with the trials that ran; the next run goes on with them."""


class AllTrialsFailed(CastorError):
    """A run in which trials failed, and no other trial ended."""


class BudgetUsedUp(CastorError):
    """A study may cost no more; its trials go on when it may."""


def require_money(view: JobView | None) -> None:
    """See that a trial's job was not ended for want of money.

    Raises:
        BudgetUsedUp: it was; the trial stays as it is, for when there is more.
    """
    if view is not None and view.study is not None and view.cause == budget_used_up(view.study):
        raise BudgetUsedUp(
            f"{view.cause} with a larger one (the objective's budget in its file, or budget_usd=)"
        )


def ended_trials(study: optuna.Study) -> frozenset[int]:
    """Return the numbers of the trials that have ended."""
    trials = study.get_trials(deepcopy=False)
    return frozenset(trial.number for trial in trials if trial.state.is_finished())


def require_result(study: optuna.Study, ended_before: frozenset[int]) -> None:
    """Raise where a run brought nothing.

    Args:
        study: the study after the run.
        ended_before: numbers of the trials that had ended before it.

    Raises:
        NothingRan: no trial has ended in it.
        AllTrialsFailed: those that have ended failed.
    """
    trials = [study.trials[number] for number in sorted(ended_trials(study) - ended_before)]
    if not trials:
        raise NothingRan("no trial has ended in this run: see its log, deadline and timeout")
    if all(trial.state is TrialState.FAIL for trial in trials):
        which = "the only trial" if len(trials) == 1 else f"all {len(trials)} trials"
        last = "" if len(trials) == 1 else "; the last"
        raise AllTrialsFailed(f"{which} of this run failed{last}: {cause_of(trials[-1])}")


def what_is_missed(views: Iterable[JobView]) -> str | None:
    """What the planner finds of a study that can't be kept; None: nothing."""
    notes = (view.decision.note for view in views if view.decision is not None)
    return next((note for note in notes if note), None)


def waits_for_ever(
    views: Sequence[JobView | None], has_run: bool, ends_at_deadline: bool = False
) -> bool:
    """Return whether a study ends at its deadline, as it is to, with trials that never begin.

    Args:
        views: the jobs of all trials that have not ended.
        has_run: whether a trial has ended in this run.
        ends_at_deadline: whether no trial is to begin after the deadline (`after_deadline: stop`).

    Raises:
        BudgetUsedUp: the budget keeps them from beginning.
        DeadlineReached: the deadline does, and trials were to begin whatever it is.
        NothingRan: the deadline does, and no trial has ended in this run.
    """
    there = [view for view in views if view is not None and not view.instances]
    decisions = [view.decision for view in there if view.decision is not None]
    grounds = {decision.ground for decision in decisions}
    if not views or len(decisions) < len(views) or not grounds <= {BEYOND_BUDGET, BEYOND_DEADLINE}:
        return False
    reason = decisions[0].reason
    if BEYOND_BUDGET in grounds:
        raise BudgetUsedUp(f"{reason}: give the study more, its trials go on")
    if not has_run:
        raise NothingRan(f"no trial has run: {reason}: set a later deadline, or none")
    if not ends_at_deadline:
        left = "a trial" if len(views) == 1 else f"{len(views)} trials"
        raise DeadlineReached(
            f"{left} can't begin before the deadline: {reason}: set a later one, or none, and run "
            "the study again"
        )
    _log.warning("the study ends here: %s", reason)
    return True
