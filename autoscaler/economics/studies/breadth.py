"""Asynchronous trials: breadth first, and growth only where it is not money wasted.

Without a barrier nobody waits for a slow trial, so nothing but the deadline, or what is paid for
already, can make more than the smallest size pay: $ per unit of work only rise with size. An index
of expected improvement per dollar that decides everything was tried and lost to plain trials of
one instance. What is left are guards, each from a failure of that:

G1  every trial at the smallest size, every other instance to the pruner's next trial;
G2  a trial grows only by what is freed or paid for, or if the deadline binds: it can't reach its
    next rung by then as it is, or, the likeliest best, its end; and only if that improves more
    per dollar than a fresh trial;
G3  no fresh trial that can't reach its first rung by the deadline;
G4  nothing is stopped on a prediction: who lives is the pruner's business;
G5  what the likely finalists need to their ends is kept of the budget, and what is begun is
    likely to be paid to its end; when the money ends, the finalists' ends last;
G6  a resize must save a tenth of what is left, and rests for a while after the last.
"""

from __future__ import annotations

from collections.abc import Sequence

from autoscaler.economics.studies.async_trials import (
    AsyncAction,
    AsyncDecision,
    AsyncTerms,
    AsyncTrial,
    BreadthPlan,
)
from autoscaler.economics.studies.breadth_desk import Desk
from autoscaler.economics.studies.rung import StudySupply


def plan_breadth(
    trials: Sequence[AsyncTrial], supply: StudySupply, terms: AsyncTerms
) -> BreadthPlan:
    """What each trial holds until the next news. Fresh trials come in the sampler's order."""
    desk = Desk(supply, terms, trials)
    decisions: dict[str, AsyncDecision] = {}
    for trial in desk.finalists:
        decisions[trial.id] = desk.held(trial)
    for trial in desk.others:
        decisions[trial.id] = desk.paused(trial) or desk.held(trial)
    if terms.deadline_seconds is not None:
        for trial in (*desk.finalists, *desk.others):
            if decisions[trial.id].action is AsyncAction.HOLD:
                decisions[trial.id] = desk.grown_to_be_in_time(trial) or decisions[trial.id]
    for trial in trials:
        if trial.held is None:
            decisions[trial.id] = desk.started(trial)
    for trial in (*desk.finalists, *desk.others):
        if decisions[trial.id].action is AsyncAction.HOLD:
            decisions[trial.id] = desk.grown_for_nothing(trial) or decisions[trial.id]
    return BreadthPlan(
        tuple(decisions[one.id] for one in trials), desk.release(), desk.reserve_usd
    )
