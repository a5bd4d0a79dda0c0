"""No trial that is there waits for one that is only to come.

In the plan of a rung those that are to come may have more to do, and so begin before those that
are there. But they may never come, or only when one that is there has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.studies.rung import TrialState
from autoscaler.economics.studies.study_plan import StudyPlan, TrialAction, TrialDecision

_BEGINS = (TrialAction.START, TrialAction.TAKE_OVER)


def with_present_first(
    plan: StudyPlan, present: Sequence[TrialState], sizes: Sequence[Allocation]
) -> StudyPlan:
    """The plan, in which those that are `present` have changed places with others that begin now.

    Only with one whose size is for it; `sizes` are those of the columns of their goodput.
    """
    there, places = {one.id: one for one in present}, {size: at for at, size in enumerate(sizes)}
    decided = list(plan.decisions)
    coming = [
        at for at, one in enumerate(decided) if one.trial not in there and one.action in _BEGINS
    ]
    for at, waits in enumerate(decided):
        if waits.trial not in there or waits.action is not TrialAction.WAIT:
            continue
        goodput = there[waits.trial].goodput
        other = next(
            (
                one
                for one in coming
                if (size := decided[one].target) is not None
                and (goodput[:, places[size]] > 0).all()
            ),
            None,
        )
        if other is not None:
            coming.remove(other)
            decided[at], decided[other] = _changed_over(waits, decided[other])
    return replace(plan, decisions=tuple(decided))


def _changed_over(
    waits: TrialDecision, begins: TrialDecision
) -> tuple[TrialDecision, TrialDecision]:
    reason = f"start {waits.trial} on {begins.size}: it is there, and others are still to come"
    return (
        replace(begins, trial=waits.trial, reason=reason, seconds=waits.seconds),
        replace(waits, trial=begins.trial, after=waits.trial),
    )
