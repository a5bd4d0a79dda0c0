"""Studies that can't go on, though they have trials left."""

from __future__ import annotations

from autoscaler.domain.plan import ReasonCode
from autoscaler.economics.studies.constraints import StudyConstraints
from autoscaler.economics.studies.rungs.synchronous import trials_to_begin
from autoscaler.economics.studies.study_plan import StudyPlan, WaitCause
from autoscaler.economics.studies.study_state import StudyState
from autoscaler.economics.studies.supply import Room
from autoscaler.economics.studies.trial_state import size_of


def infeasible_reason(
    state: StudyState, constraints: StudyConstraints, plan: StudyPlan
) -> ReasonCode | None:
    """Return why no trial of a study will ever begin; None if one may.

    Nothing trains, nothing is to train, and there is room. Free instances of the study may be what
    leaves no room.
    """
    if state.free or any(job.held is not None for job in state.jobs.values()):
        return None
    if any(decision.target is not None for decision in plan.decisions):
        return None
    supply, room = state.supply, Room(state.supply)
    waiting = [trial for trial in state.trials if trial.can_train and not trial.waits_for_decision]
    sizes = [size for trial in waiting if (size := size_of(trial, supply)) is not None]
    if not any(room.bears(int(supply.offer_of[s]), int(supply.instances[s])) for s in sizes):
        return None
    if any(decision.cause is WaitCause.BUDGET for decision in plan.decisions):
        return ReasonCode.BEYOND_BUDGET
    if constraints.begins_none:
        return ReasonCode.BEYOND_DEADLINE
    if state.study.terms.synchronous and trials_to_begin(state):
        return None  # trials of the rung wait for instances of those that have not begun
    if constraints.deadline_seconds is not None:
        return ReasonCode.BEYOND_DEADLINE
    return ReasonCode.BEYOND_BUDGET if constraints.budget_usd is not None else None
