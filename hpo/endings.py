"""Why a study ends before its effort is made: what its jobs tell of that."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

import optuna

from autoscaler.domain.errors import CastorError
from autoscaler.domain.plan import BEYOND_BUDGET, BEYOND_DEADLINE
from autoscaler.domain.terms import budget_used_up
from autoscaler.wire.messages import JobView

_log = logging.getLogger(__name__)

UNTIL_IT_IS_KNOWN: Final = " (a guess: until one has reported twice a trial is an hour's work)"


class StudyStopped(CastorError):
    """Somebody has stopped the study, with the trials that ran; the next run goes on with them."""


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


def what_is_missed(views: Iterable[JobView]) -> str | None:
    """What the planner finds of a study that can't be kept; None: nothing."""
    notes = (view.decision.note for view in views if view.decision is not None)
    return next((note for note in notes if note), None)


def has_told_its_pace(study: optuna.Study) -> bool:
    """Whether it is known how long a trial takes: one has reported twice, or has ended."""
    return any(
        trial.state.is_finished() or len(trial.intermediate_values) > 1
        for trial in study.get_trials(deepcopy=False)
    )


def waits_for_ever(views: Sequence[JobView | None]) -> bool:
    """Whether the trials of these jobs, all that there are, will never begin, for want of time.

    Raises:
        BudgetUsedUp: for want of money.
    """
    there = [view for view in views if view is not None and not view.instances]
    decisions = [view.decision for view in there if view.decision is not None]
    grounds = {decision.ground for decision in decisions}
    if not views or len(decisions) < len(views) or not grounds <= {BEYOND_BUDGET, BEYOND_DEADLINE}:
        return False
    reason = decisions[0].reason
    if BEYOND_BUDGET in grounds:
        raise BudgetUsedUp(f"{reason}: give the study more, its trials go on")
    _log.warning("the study ends here: %s", reason)
    return True
