"""Whether a study is over, though it has trials left: none will ever begin."""

from __future__ import annotations

from autoscaler.domain.plan import BEYOND_BUDGET, BEYOND_DEADLINE
from autoscaler.economics.studies.goal import StudyGoal
from autoscaler.economics.studies.moment import StudyMoment
from autoscaler.economics.studies.room import Room
from autoscaler.economics.studies.rung_planning import trials_to_begin
from autoscaler.economics.studies.verdicts import StudyVerdict
from autoscaler.economics.studies.ways import size_of, way_usd


def over(moment: StudyMoment, goal: StudyGoal, verdict: StudyVerdict) -> str | None:
    """The ground on which no trial begins, where time will not change it; None: there is none.

    Nothing trains, nothing is to, and it is not for want of room. While the study holds
    instances that no trial has, they may be what leaves no room.
    """
    if moment.free:
        return None
    holds = any(one.held is not None or one.job.held is not None for one in moment.trials)
    if holds or any(one.target is not None for one in verdict.trials):
        return None
    waiting = [one for one in moment.trials if one.can_train and not one.waits_for_decision]
    sizes = [size for one in waiting if (size := size_of(one, moment.supply)) is not None]
    room = Room(moment.supply)
    if not any(
        room.bears(int(moment.supply.offer_of[size]), int(moment.supply.instances[size]))
        for size in sizes
    ):
        return None
    if goal.left_usd is not None and all(
        way_usd(one, size, one.to_decision, moment) > goal.left_usd
        for one, size in zip(waiting, sizes, strict=True)
    ):
        return BEYOND_BUDGET
    if goal.begins_none:
        return BEYOND_DEADLINE
    if moment.study.terms.synchronous and trials_to_begin(moment):
        return None  # those of the rung that are there wait for instances of those to come
    if goal.deadline_seconds is not None:
        return BEYOND_DEADLINE
    return BEYOND_BUDGET if goal.left_usd is not None else None
