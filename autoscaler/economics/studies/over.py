"""Whether a study is over, though it has trials left: none will ever begin."""

from __future__ import annotations

from autoscaler.domain.plan import BEYOND_BUDGET, BEYOND_DEADLINE
from autoscaler.economics.studies.constraints import StudyConstraints
from autoscaler.economics.studies.room import Room
from autoscaler.economics.studies.rung_planning import trials_to_begin
from autoscaler.economics.studies.study_plan import StudyPlan, WaitCause
from autoscaler.economics.studies.study_state import StudyState
from autoscaler.economics.studies.ways import size_of


def over(state: StudyState, constraints: StudyConstraints, plan: StudyPlan) -> str | None:
    """Return why no trial will ever begin; None where time may change that, or one is to train.

    Nothing trains, nothing is to, and not for want of room. While the study holds instances that
    no trial has, they may be what leaves no room.
    """
    if state.free or any(job.held is not None for job in state.jobs.values()):
        return None
    if any(one.target is not None for one in plan.decisions):
        return None
    waiting = [one for one in state.trials if one.can_train and not one.waits_for_decision]
    sizes = [size for one in waiting if (size := size_of(one, state.supply)) is not None]
    room = Room(state.supply)
    if not any(
        room.bears(int(state.supply.offer_of[size]), int(state.supply.instances[size]))
        for size in sizes
    ):
        return None
    if any(one.cause is WaitCause.BUDGET for one in plan.decisions):
        return BEYOND_BUDGET
    if constraints.begins_none:
        return BEYOND_DEADLINE
    if state.study.terms.synchronous and trials_to_begin(state):
        return None  # those of the rung that are there wait for instances of those to come
    if constraints.deadline_seconds is not None:
        return BEYOND_DEADLINE
    return BEYOND_BUDGET if constraints.budget_usd is not None else None
