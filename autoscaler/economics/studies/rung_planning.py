"""The plan of a synchronous search: its trials up to their barrier."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from autoscaler.economics.forecast import Range
from autoscaler.economics.studies.constraints import BudgetTracker, StudyConstraints
from autoscaler.economics.studies.rung import (
    FreedInstances,
    FutureRung,
    Rung,
    SurvivorDraws,
    TrialState,
    future_rungs,
)
from autoscaler.economics.studies.study_plan import (
    StudyPlan,
    TrialAction,
    TrialDecision,
    WaitCause,
    holds,
    waits,
)
from autoscaler.economics.studies.study_state import StudyState
from autoscaler.economics.studies.synchronous import plan_rung
from autoscaler.economics.studies.ways import way_usd
from autoscaler.economics.wording import duration
from autoscaler.goodput.throughput import FloatArray

_ROUNDING = 1e-9
# A deadline is likely to be kept from this chance on.
_LIKELY = 0.5
# The first trial to grow takes at most so many times as many instances.
_FIRST_GROWTH = 4
# Share of the time left that is not planned for; chosen on development seeds.
RESERVE = 0.08
# Of the trials that are to begin with the others, so many are planned for.
_MOST_TO_BEGIN = 60


def plan_synchronous(state: StudyState, constraints: StudyConstraints) -> StudyPlan:
    """What each trial holds until the next news; at its barrier only what the next rung wants."""
    racing = [one for one in state.trials if not one.waits_for_decision and one.can_train]
    if not racing:
        return _at_the_barrier(state)
    state = _with_room_to_race(state, racing)
    rung = _rung(state, racing)
    is_bound = constraints.deadline_seconds is not None or constraints.budget_usd is not None
    worth = 0.0 if is_bound else constraints.usd_per_second
    try:
        bound = replace(constraints, usd_per_second=worth)
        plan = plan_rung(rung, state.supply, bound, RESERVE)
    except ValueError as error:
        return _as_it_is(state, str(error))
    decided = {one.trial: one for one in plan.decisions}
    decided |= _first_growth(state, plan, decided)
    payer = _Payer(state, constraints)
    settled = {one.id: payer.settle(one, decided[one.id]) for one in _holders_first(racing)}
    settled |= _kept(state, plan, decided)
    assert plan.barrier_seconds is not None
    barrier_seconds = plan.barrier_seconds.median
    trials = tuple(
        settled.get(one.id) or _rests(one, state, barrier_seconds) for one in state.trials
    )
    held = sum(one.target.instances for one in trials if one.target is not None)
    worth = plan.usd_per_second
    return replace(
        plan,
        decisions=trials,
        bid=max(worth, constraints.bid if constraints.deadline_seconds is not None else 0.0)
        / max(held, 1),
        shortfall=None if state.is_blind else plan.shortfall,
    )


def _first_growth(
    state: StudyState, plan: StudyPlan, decided: dict[str, TrialDecision]
) -> dict[str, TrialDecision]:
    """Return a growth that measures how trials scale, where the deadline may need them to.

    Before any trial was measured on two sizes a deadline may seem out of reach that is not. So the
    trial with most to do grows first.
    """
    deadline_seems_lost = plan.chance is not None and plan.chance < _LIKELY
    if state.scaling_is_known or state.is_blind or not deadline_seems_lost:
        return {}
    holding = [trial for trial in state.trials if trial.held is not None]
    least = min((int(state.supply.instances[trial.held]) for trial in holding), default=0)
    grows = any(one.action is TrialAction.RESIZE for one in decided.values())
    if grows or any(state.supply.instances[trial.held] > least for trial in holding):
        return {}  # the speed of one that grows will be known soon
    settled = [
        trial
        for trial in holding
        if trial.is_measured and not trial.is_changing and not trial.waits_for_decision
    ]
    if not settled:
        return {}
    trial = max(settled, key=lambda trial: _seconds_left(trial))
    supply, held = state.supply, int(trial.held or 0)
    most = _FIRST_GROWTH * supply.instances[held]
    larger = [
        size
        for size in range(len(supply.sizes))
        if supply.offer_of[size] == supply.offer_of[held]
        and supply.instances[held] < supply.instances[size] <= most
        and (trial.goodput[:, size] > 0).all()
    ]
    if not larger:
        return {}
    size = supply.sizes[max(larger, key=lambda size: supply.instances[size])]
    reason = (
        f"grow {trial.id} {supply.sizes[held].instances} -> {size}: how trials scale is not known "
        "yet, and the deadline needs them to"
    )
    return {trial.id: TrialDecision(trial.id, TrialAction.RESIZE, size, reason)}


def _seconds_left(trial: TrialState) -> float:
    return trial.to_decision / float(np.median(trial.goodput[:, trial.held]))


class _Payer:
    """Carries decisions out as far as the budget pays for them, one after the other."""

    def __init__(self, state: StudyState, constraints: StudyConstraints) -> None:
        self._state, self.budget = state, BudgetTracker(constraints.budget_usd)
        self._begins_none = constraints.begins_none
        for one in state.trials:
            if one.held is not None:
                self.budget.reserve(way_usd(one, one.held, one.to_decision, state))
        self._is_begun = any(one.held is not None for one in state.trials)

    @property
    def _is_first_measurement(self) -> bool:
        """Whether nothing was measured yet and nothing trains: then no cost is known either."""
        return self._state.is_blind and not self._is_begun and self.budget.is_open

    def settle(self, trial: TrialState, decision: TrialDecision) -> TrialDecision:
        """Return the decision, unless it takes money that the trials that train need."""
        if decision.target is None:
            return decision
        if trial.held is None and self._begins_none:
            return self._stays(trial, WaitCause.DEADLINE, "after the deadline no trial begins")
        size = self._state.supply.sizes.index(decision.target)
        if not (trial.goodput[:, size] > 0).all():
            return self._stays(trial, WaitCause.NO_OFFER, f"it may not use {decision.target}")
        if size == trial.held:
            return decision
        usd = way_usd(trial, size, trial.to_decision, self._state)
        if trial.held is not None:
            usd -= way_usd(trial, trial.held, trial.to_decision, self._state)
        if not self.budget.pays(usd) and not self._is_first_measurement:
            return self._stays(trial, WaitCause.BUDGET, self.budget.refusal(usd))
        self._is_begun = True
        self.budget.reserve(max(usd, 0.0))
        return decision

    def _stays(self, trial: TrialState, cause: WaitCause, why: str) -> TrialDecision:
        if trial.held is None:
            return waits(trial.id, cause, f": {why}")
        return holds(trial.id, self._state.supply.sizes[trial.held], f": {why}")


def _with_room_to_race(state: StudyState, racing: list[TrialState]) -> StudyState:
    """The state without the room that trials at their barrier hold and can't give back.

    Where that leaves none and nobody races, they give way and begin anew later: or none of those
    that they wait for would ever come.
    """
    stuck = [
        one
        for one in state.trials
        if one.waits_for_decision and one.held is not None and not one.can_pause
    ]
    if not stuck:
        return state
    supply, held = state.supply, Counter[int]()
    for one in stuck:
        held[int(supply.offer_of[one.held])] += int(supply.instances[one.held])
    left = supply.maximum - sum(supply.uses[:, at] * held[at] for at in held)
    wanted = np.logical_or.reduce([(one.goodput > 0).all(axis=0) for one in racing])
    fits = (supply.uses[:, supply.offer_of] * supply.instances <= left[:, None] + _ROUNDING).all(0)
    if any(one.held is not None for one in racing) or (wanted & fits).any():
        limits = (
            replace(limit, maximum=max(float(most), 0.0))
            for limit, most in zip(supply.limits, left, strict=True)
        )
        return replace(state, supply=replace(supply, limits=tuple(limits)))
    gives_way = {one.id for one in stuck}
    return replace(
        state,
        trials=tuple(
            replace(one, can_pause=True) if one.id in gives_way else one for one in state.trials
        ),
    )


def _rung(state: StudyState, racing: list[TrialState]) -> Rung:
    trials = list(racing)
    draws = len(racing[0].goodput)
    to_begin = trials_to_begin(state)
    fresh = np.tile(state.fresh, (draws, 1))
    if not (state.fresh > 0).any():
        to_begin = 0
    trials += [
        TrialState(
            f"trial {number + 1} of those to begin",
            state.first_work,
            fresh,
            is_measured=False,
            is_expected=True,
        )
        for number in range(to_begin)
    ]
    freed = state.free + tuple(
        FreedInstances(size.offer, size.instances, one.paid_seconds, one.ready_seconds)
        for one in state.trials
        if one.waits_for_decision and one.held is not None and one.can_pause
        for size in (state.supply.sizes[one.held],)
    )
    return Rung(
        tuple(trials),
        freed,
        _future(state, to_begin),
        may_pause=state.keeps_progress,
    )


def trials_to_begin(state: StudyState) -> int:
    """How many trials that have not begun belong to this rung.

    A search in groups has more to begin than that. How large a group is follows from the next
    rung: trials go from `decided_at` as far as one in eta goes on to.
    """
    terms = state.study.terms
    if not terms.to_begin or not terms.later:
        return 0
    eta = 1.0 + terms.later[0].work / state.first_work
    missing = round(terms.later[0].trials * eta) - len(state.trials)
    return min(max(missing, 0), terms.to_begin, _MOST_TO_BEGIN)


def _future(state: StudyState, to_begin: int) -> tuple[FutureRung, ...]:
    later = state.study.terms.later
    able = [one for one in state.trials if one.can_train]
    rates = np.stack([one.later_goodput for one in able] + [state.later_fresh] * to_begin, axis=1)
    weights = None if to_begin else _weights(state, able)
    counts, works = [rung.trials for rung in later], [rung.work for rung in later]
    return future_rungs(rates, counts, works, SurvivorDraws(weights))


def _weights(state: StudyState, trials: list[TrialState]) -> FloatArray | None:
    """How likely each is to survive: by its place at the last progress that all have told of."""
    if not trials or any(not one.progress.reports for one in trials):
        return None
    sign = -1.0 if state.study.terms.directions[:1] == ("maximize",) else 1.0
    common = min(max(at for at, _ in one.progress.reports) for one in trials)
    values = []
    for one in trials:
        told = [(at, value) for at, value in one.progress.reports if at <= common]
        values.append(sign * max(told)[1] if told else np.inf)
    place = np.argsort(np.argsort(np.nan_to_num(values, nan=np.inf), kind="stable"), kind="stable")
    weights: FloatArray = 1.0 / (1.0 + place.astype(np.float64))
    return weights


def _kept(
    state: StudyState, plan: StudyPlan, decided: dict[str, TrialDecision]
) -> dict[str, TrialDecision]:
    """Trials at their barrier that keep what they hold: a boot for the next rung takes longer."""
    standby = plan.standby
    if standby is None or not standby.keep:
        return {}
    free = Counter(one.offer for one in state.free)[standby.offer]
    free -= sum(
        one.target.instances
        for one in decided.values()
        if one.action is TrialAction.TAKE_OVER
        and one.target is not None
        and one.target.offer == standby.offer
    )
    kept, left = {}, standby.keep - max(free, 0)
    for one in _by_promise(state):
        held = None if one.held is None else state.supply.sizes[one.held]
        if (
            held is None
            or not one.can_pause
            or held.offer != standby.offer
            or held.instances > left
        ):
            continue
        left -= held.instances
        kept[one.id] = holds(one.id, held, f", at its barrier: {standby.reason}")
    return kept


def _by_promise(state: StudyState) -> list[TrialState]:
    """Those that wait at their barrier, who is likeliest to survive first."""
    there = [one for one in state.trials if one.waits_for_decision]
    weights = _weights(state, there)
    if weights is None:
        return there
    order = np.argsort(-weights, kind="stable")
    return [there[place] for place in order.tolist()]


def _rests(trial: TrialState, state: StudyState, barrier_seconds: float) -> TrialDecision:
    """Return what becomes of a trial at its barrier, or of one for which there is no size."""
    if not trial.waits_for_decision:
        return waits(trial.id, WaitCause.NO_OFFER, ": nothing that it may use is offered")
    if trial.held is not None and not trial.can_pause:
        held = state.supply.sizes[trial.held]
        return holds(trial.id, held, ", at its barrier: it would begin anew elsewhere")
    soon = f" for the barrier: the barrier is in {duration(barrier_seconds)}"
    return waits(trial.id, WaitCause.BARRIER, soon)


def _at_the_barrier(state: StudyState) -> StudyPlan:
    """Return the plan where all wait for their pruner: what the next rung wants is kept a while.

    That is as long as a boot takes.
    """
    supply, later = state.supply, state.study.terms.later
    wanted = later[0].trials if later else 0
    told = max((one.told_seconds for one in state.study.trials), default=-np.inf)
    trials = []
    for one in state.trials:
        held = None if one.held is None else supply.sizes[one.held]
        boots = 0.0 if one.held is None else float(supply.boot_seconds[one.held])
        if held is not None and not one.can_pause:
            trials.append(_rests(one, state, 0.0))
            continue
        if held is None or not wanted or state.now_seconds - told > boots:
            trials.append(waits(one.id, WaitCause.BARRIER, " for its pruner"))
            continue
        wanted -= 1
        trials.append(holds(one.id, held, ": its pruner decides now, and the next rung wants it"))
    return StudyPlan(tuple(trials), barrier_seconds=Range(0.0, 0.0, 0.0, 0.0))


def _as_it_is(state: StudyState, why: str) -> StudyPlan:
    """Return the plan where none was found: trials that train go on."""
    return StudyPlan(
        tuple(
            waits(one.id, WaitCause.LIMITS, f": {why}")
            if one.held is None or one.waits_for_decision
            else holds(one.id, state.supply.sizes[one.held], f": {why}")
            for one in state.trials
        )
    )


def _holders_first(trials: list[TrialState]) -> list[TrialState]:
    return sorted(trials, key=lambda one: one.held is None)
