"""Studies with terms in the policy `marginal`: their trials are planned together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Limit, LimitUnit
from autoscaler.domain.plan import Decision, Plan, ReasonCode
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, StudySnapshot
from autoscaler.economics.explanation.reasons import action_of
from autoscaler.economics.pricing.objectives import price_range
from autoscaler.economics.studies.asynchronous import plan_asynchronous
from autoscaler.economics.studies.constraints import StudyConstraints, study_constraints
from autoscaler.economics.studies.rungs.synchronous import plan_synchronous, trials_to_begin
from autoscaler.economics.studies.study_plan import StudyPlan, TrialDecision, WaitCause
from autoscaler.economics.studies.study_state import StudyState, study_state
from autoscaler.economics.studies.supply import Room
from autoscaler.economics.studies.trial_state import TrialState, size_of
from autoscaler.economics.supply.supply import SECONDS_PER_HOUR, Supply
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.transition import releases_first


@dataclass(frozen=True, slots=True, eq=False)
class StudyWork:
    """A study with its jobs to plan for, the first submitted first.

    `set_aside` are its other jobs, which keep what they hold: their trials have ended, or their
    offer no longer exists.
    """

    study: StudySnapshot
    jobs: tuple[JobSnapshot, ...]
    set_aside: tuple[JobSnapshot, ...]


@dataclass(frozen=True, slots=True, eq=False)
class StudyPart:
    """Decisions on the jobs of a study, and the plan that they come from; None: no plan."""

    decisions: tuple[Decision, ...]
    plan: StudyPlan | None


def studies_of(snapshot: Snapshot, supply: Supply) -> tuple[StudyWork, ...]:
    """Return the studies with terms that have jobs, sorted by name."""
    works = []
    for study in sorted(snapshot.studies, key=lambda study: study.name):
        jobs = [job for job in snapshot.jobs if job.study == study.name]
        if not jobs:
            continue
        jobs.sort(key=lambda job: (job.submitted_seconds, job.id))
        ended = {record.stands.job for record in study.trials if record.stands.has_ended}
        aside = {job.id for job in jobs if job.id in ended or _holds_unknown(job, supply)}
        works.append(
            StudyWork(
                study,
                tuple(job for job in jobs if job.id not in aside),
                tuple(job for job in jobs if job.id in aside),
            )
        )
    return tuple(works)


def plan_study(
    work: StudyWork,
    supply: Supply,
    taken: FloatArray,
    most_times: float,
    most_instances: int | None = None,
) -> StudyPart:
    """Decide on the jobs of one study, within what other jobs leave of the limits.

    Args:
        work: the study and its jobs.
        supply: the offers and limits.
        taken: use of each limit by other jobs, (R,).
        most_times: highest value of time, in hourly prices of the job's largest allocation.
        most_instances: most instances that its trials may hold together; None: no such bound.
    """
    aside = [_stays(job) for job in work.set_aside]
    if not work.jobs:
        return StudyPart(tuple(aside), None)
    taken = taken + supply.uses(job.held for job in work.set_aside)
    state = study_state(work.study, work.jobs, supply, taken)
    if state is None:
        waits = [_nothing(job) for job in work.jobs]
        return StudyPart(tuple(aside + waits), None)
    if most_instances is not None:
        share = Limit("share of the study", LimitUnit.INSTANCES, float(most_instances))
        limits = (*state.supply.limits, share)
        state = replace(state, supply=replace(state.supply, limits=limits))
    state = _within_limits(state)
    prices = price_range(work.jobs[0], supply, most_times)
    constraints = study_constraints(
        work.study, supply.now_seconds, prices, work.jobs[0].dollar_weight
    )
    planned = plan_synchronous if work.study.terms.synchronous else plan_asynchronous
    plan = planned(state, constraints).with_note(constraints.note)
    ground = _infeasible_reason(state, constraints, plan) or ReasonCode.STUDY
    decisions = [
        replace(_decision(trial, decision, plan, state), ground=ground)
        for trial, decision in zip(state.trials, plan.decisions, strict=True)
    ]
    return StudyPart(tuple(aside + decisions), plan)


def targets(parts: Sequence[StudyPart]) -> Mapping[str, Allocation | None]:
    """Return the target allocation of each job of the studies; None: nothing."""
    return {decision.job: decision.target for part in parts for decision in part.decisions}


def together(rest: Plan, parts: Sequence[StudyPart], supply: Supply) -> Plan:
    """Return the plan of all jobs: `rest`, and the decisions on the studies' jobs."""
    decisions = [*rest.decisions, *(decision for part in parts for decision in part.decisions)]
    decisions.sort(key=lambda decision: decision.job)
    changes = [(decision.current, decision.target) for decision in decisions]
    first = releases_first(changes, supply)
    return replace(
        rest,
        decisions=tuple(
            replace(decision, release_first=decision.release_first or waits)
            for decision, waits in zip(decisions, first, strict=True)
        ),
    )


def _infeasible_reason(
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


def _within_limits(state: StudyState) -> StudyState:
    """Return the study without allocations beyond the limits.

    The most advanced trials keep what they hold until a limit is reached. A size outside its
    job's present bounds is not kept.
    """
    room, kept = Room(state.supply), set[str]()
    order = sorted(state.trials, key=lambda trial: (-trial.progress.progress, trial.id))
    for trial in order:
        held = trial.held
        if held is None or not (trial.goodput[:, held] > 0).any():
            continue
        offer, count = int(state.supply.offer_of[held]), int(state.supply.instances[held])
        if room.bears(offer, count):
            room.take(offer, count)
            kept.add(trial.id)
    free = []
    for freed in state.free:
        place = state.supply.place_of[freed.offer]
        if room.bears(place, freed.instances):
            room.take(place, freed.instances)
            free.append(freed)
    trials = tuple(
        trial
        if trial.held is None or trial.id in kept
        else replace(trial, held=None, ready_seconds=0.0, paid_seconds=0.0)
        for trial in state.trials
    )
    return replace(state, trials=trials, free=tuple(free))


def _decision(
    trial: TrialState, decided: TrialDecision, plan: StudyPlan, state: StudyState
) -> Decision:
    job = state.jobs[trial.id]
    action = action_of(job.held, decided.target, stops=False)
    planned_from = None if trial.held is None else state.supply.sizes[trial.held]
    reason = decided.reason
    if action is not action_of(planned_from, decided.target, stops=False):
        reason = (
            f"{action.value} {job.id} {job.held} -> {decided.target}: its bounds or limits changed"
        )
    if plan.shortfall is not None:
        reason = f"{reason}; study {state.study.name}: {plan.shortfall}"
    return Decision(
        job=job.id,
        action=action,
        current=job.held,
        target=decided.target,
        reason=reason,
        figures=_figures(trial, decided, plan, state),
        note=plan.shortfall or "",
    )


def _figures(
    trial: TrialState, decided: TrialDecision, plan: StudyPlan, state: StudyState
) -> dict[str, float]:
    """Return the figures of a decision; unknown ones are left out."""
    figures = {
        "study_usd_per_hour": plan.usd_per_second * SECONDS_PER_HOUR,
        "bid_usd_per_hour": plan.bid * SECONDS_PER_HOUR,
        "weight": state.jobs[trial.id].weight,
        "progress": trial.progress.progress,
        "work_to_decision": trial.to_decision,
        "work_to_end": trial.to_end,
    }
    if decided.target in state.supply.sizes:
        rate = np.median(trial.goodput[:, state.supply.sizes.index(decided.target)])
        figures["work_per_hour"] = float(rate) * SECONDS_PER_HOUR
    if plan.barrier_seconds is not None:
        figures["barrier_seconds"] = plan.barrier_seconds.median
    if plan.seconds is not None:
        figures["study_seconds"] = plan.seconds.median
    if plan.chance is not None:
        figures["chance"] = plan.chance
    return figures


def _holds_unknown(job: JobSnapshot, supply: Supply) -> bool:
    return job.held is not None and supply.offer(job.held.offer) is None


def _stays(job: JobSnapshot) -> Decision:
    """Return the decision that a job keeps what it holds: it is not planned for any more."""
    if job.held is None:
        reason = f"wait {job.id}: its trial has ended"
    else:
        reason = f"hold {job.id} at {job.held}: it is not planned for any more"
    action = action_of(job.held, job.held, stops=False)
    return Decision(job.id, action, job.held, job.held, reason, ground=ReasonCode.STUDY)


def _nothing(job: JobSnapshot) -> Decision:
    reason = f"wait {job.id}: nothing that it may use is offered"
    return Decision(
        job.id,
        action_of(job.held, None, stops=False),
        job.held,
        None,
        reason,
        ground=ReasonCode.STUDY,
    )
