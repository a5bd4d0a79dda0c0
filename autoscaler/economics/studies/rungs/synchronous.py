"""Plan of a synchronous search: its trials up to their next barrier."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from autoscaler.economics.forecasts.forecast import Range
from autoscaler.economics.pricing.wording import duration
from autoscaler.economics.studies.constraints import BudgetTracker, StudyConstraints
from autoscaler.economics.studies.rungs.rung import (
    FutureRung,
    Rung,
    SurvivorDraws,
    future_rungs,
)
from autoscaler.economics.studies.rungs.rung_plan import plan_rung
from autoscaler.economics.studies.study_plan import (
    StudyPlan,
    TrialAction,
    TrialDecision,
    WaitCause,
    holds,
    waits,
)
from autoscaler.economics.studies.study_state import StudyState
from autoscaler.economics.studies.trial_state import (
    FreedInstances,
    TrialState,
    remaining_cost_usd,
)
from autoscaler.goodput.throughput import FloatArray

# Share of the time left that is not planned for; chosen on development seeds.
RESERVE = 0.08
_ROUNDING = 1e-9
# A deadline is likely to be kept from this chance on.
_LIKELY = 0.5
# The first trial to grow takes at most this many times its instances.
_FIRST_GROWTH = 4
# Trials to begin are planned for up to this number.
_MOST_TO_BEGIN = 60


def plan_synchronous(state: StudyState, constraints: StudyConstraints) -> StudyPlan:
    """Return what each trial holds until the next event."""
    training = [
        trial for trial in state.trials if not trial.waits_for_decision and trial.can_train
    ]
    if not training:
        return _at_the_barrier(state)
    state = _without_stuck(state, training)
    is_bound = constraints.deadline_seconds is not None or constraints.budget_usd is not None
    worth = 0.0 if is_bound else constraints.usd_per_second
    try:
        plan = plan_rung(
            _rung(state, training),
            state.supply,
            replace(constraints, usd_per_second=worth),
            RESERVE,
        )
    except ValueError as error:
        return _unchanged(state, str(error))
    decisions = {decision.trial: decision for decision in plan.decisions}
    decisions |= _first_growth(state, plan, decisions)
    payer = _Payer(state, constraints)
    holders_first = sorted(training, key=lambda trial: trial.held is None)
    settled = {trial.id: payer.settle(trial, decisions[trial.id]) for trial in holders_first}
    settled |= _kept(state, plan, decisions)
    barrier_seconds = 0.0 if plan.barrier_seconds is None else plan.barrier_seconds.median
    final = tuple(
        settled.get(trial.id) or _at_rest(trial, state, barrier_seconds) for trial in state.trials
    )
    held = sum(decision.target.instances for decision in final if decision.target is not None)
    bid = constraints.bid if constraints.deadline_seconds is not None else 0.0
    return replace(
        plan,
        decisions=final,
        bid=max(plan.usd_per_second, bid) / max(held, 1),
        shortfall=None if state.is_blind else plan.shortfall,
    )


def _first_growth(
    state: StudyState, plan: StudyPlan, decisions: dict[str, TrialDecision]
) -> dict[str, TrialDecision]:
    """Return a growth that measures how trials scale, where the deadline may need them to.

    Before any trial was measured on two sizes, a deadline may seem out of reach that is not. The
    trial with most to do grows. The result is empty where that is not needed, or under way.
    """
    seems_lost = plan.chance is not None and plan.chance < _LIKELY
    if state.scaling_is_known or state.is_blind or not seems_lost:
        return {}
    supply = state.supply
    holding = [trial for trial in state.trials if trial.held is not None]
    least = min((int(supply.instances[trial.held]) for trial in holding), default=0)
    grows = any(decision.action is TrialAction.RESIZE for decision in decisions.values())
    if grows or any(supply.instances[trial.held] > least for trial in holding):
        return {}
    settled = [
        trial
        for trial in holding
        if trial.is_measured and not trial.is_changing and not trial.waits_for_decision
    ]
    trial = max(settled, key=_seconds_left, default=None)
    if trial is None or trial.held is None:
        return {}
    held = supply.sizes[trial.held]
    larger = [
        size
        for index, size in enumerate(supply.sizes)
        if size.offer == held.offer
        and held.instances < size.instances <= _FIRST_GROWTH * held.instances
        and (trial.goodput[:, index] > 0).all()
    ]
    if not larger:
        return {}
    size = max(larger, key=lambda size: size.instances)
    reason = (
        f"grow {trial.id} {held.instances} -> {size}: how trials scale is not known yet, and the "
        "deadline needs them to"
    )
    return {trial.id: TrialDecision(trial.id, TrialAction.RESIZE, size, reason)}


def _seconds_left(trial: TrialState) -> float:
    return trial.to_decision / float(np.median(trial.goodput[:, trial.held]))


class _Payer:
    """Admits decisions one after the other, as far as the budget pays for them."""

    def __init__(self, state: StudyState, constraints: StudyConstraints) -> None:
        self._state, self.budget = state, BudgetTracker(constraints.budget_usd)
        self._begins_none = constraints.begins_none
        for trial in state.trials:
            if trial.held is not None:
                self.budget.reserve(self._cost_usd(trial, trial.held))
        self._is_begun = any(trial.held is not None for trial in state.trials)

    def _cost_usd(self, trial: TrialState, size: int) -> float:
        return remaining_cost_usd(trial, size, trial.to_decision, self._state.supply)

    @property
    def _is_first_measurement(self) -> bool:
        """Whether no cost is known: nothing was measured yet and nothing trains."""
        return self._state.is_blind and not self._is_begun and self.budget.is_open

    def settle(self, trial: TrialState, decision: TrialDecision) -> TrialDecision:
        """Return the decision, or that the trial stays as it is where this can't be paid."""
        if decision.target is None:
            return decision
        if trial.held is None and self._begins_none:
            return self._stays(trial, WaitCause.DEADLINE, "after the deadline no trial begins")
        size = self._state.supply.sizes.index(decision.target)
        if not (trial.goodput[:, size] > 0).all():
            return self._stays(trial, WaitCause.NO_OFFER, f"it may not use {decision.target}")
        if size == trial.held:
            return decision
        usd = self._cost_usd(trial, size)
        if trial.held is not None:
            usd -= self._cost_usd(trial, trial.held)
        if not self.budget.pays(usd) and not self._is_first_measurement:
            return self._stays(trial, WaitCause.BUDGET, self.budget.refusal(usd))
        self._is_begun = True
        self.budget.reserve(max(usd, 0.0))
        return decision

    def _stays(self, trial: TrialState, cause: WaitCause, why: str) -> TrialDecision:
        if trial.held is None:
            return waits(trial.id, cause, f": {why}")
        return holds(trial.id, self._state.supply.sizes[trial.held], f": {why}")


def _without_stuck(state: StudyState, training: list[TrialState]) -> StudyState:
    """Return the state without the room of trials at their barrier that can't pause.

    If no trial trains and none has room beside them, they pause all the same and begin anew later:
    otherwise the trials that they wait for would never train.
    """
    stuck = [
        trial
        for trial in state.trials
        if trial.waits_for_decision and trial.held is not None and not trial.can_pause
    ]
    if not stuck:
        return state
    supply, held = state.supply, Counter[int]()
    for trial in stuck:
        held[int(supply.offer_of[trial.held])] += int(supply.instances[trial.held])
    left = supply.maximum - sum(supply.uses[:, offer] * held[offer] for offer in held)
    wanted = np.logical_or.reduce([(trial.goodput > 0).all(axis=0) for trial in training])
    fits = (supply.uses[:, supply.offer_of] * supply.instances <= left[:, None] + _ROUNDING).all(0)
    if any(trial.held is not None for trial in training) or (wanted & fits).any():
        limits = (
            replace(limit, maximum=max(float(maximum), 0.0))
            for limit, maximum in zip(supply.limits, left, strict=True)
        )
        return replace(state, supply=replace(supply, limits=tuple(limits)))
    pausing = {trial.id for trial in stuck}
    return replace(
        state,
        trials=tuple(
            replace(trial, can_pause=trial.can_pause or trial.id in pausing)
            for trial in state.trials
        ),
    )


def _rung(state: StudyState, training: list[TrialState]) -> Rung:
    """Return the present rung: trials that train or wait to, and those expected to begin."""
    to_begin = trials_to_begin(state) if (state.fresh > 0).any() else 0
    expected = tuple(
        TrialState(
            f"trial {number + 1} of those to begin",
            state.first_work,
            np.tile(state.fresh, (len(training[0].goodput), 1)),
            is_measured=False,
            is_expected=True,
        )
        for number in range(to_begin)
    )
    freed = tuple(
        FreedInstances(size.offer, size.instances, trial.paid_seconds, trial.ready_seconds)
        for trial in state.trials
        if trial.waits_for_decision and trial.held is not None and trial.can_pause
        for size in (state.supply.sizes[trial.held],)
    )
    return Rung(
        (*training, *expected),
        state.free + freed,
        _future(state, to_begin),
        may_pause=state.keeps_progress,
    )


def trials_to_begin(state: StudyState) -> int:
    """Return how many trials that have not begun belong to this rung.

    A search in groups has more trials to begin than one group. The size of a group follows from
    the next rung: one in eta of its trials goes on, eta times as far as `first_work`.
    """
    terms = state.study.terms
    if not terms.to_begin or not terms.later:
        return 0
    eta = 1.0 + terms.later[0].work / state.first_work
    missing = round(terms.later[0].trials * eta) - len(state.trials)
    return min(max(missing, 0), terms.to_begin, _MOST_TO_BEGIN)


def _future(state: StudyState, to_begin: int) -> tuple[FutureRung, ...]:
    later = state.study.terms.later
    able = [trial for trial in state.trials if trial.can_train]
    rates = [trial.later_goodput for trial in able] + [state.later_fresh] * to_begin
    weights = None if to_begin else _survival_weights(state, able)
    counts, works = [rung.trials for rung in later], [rung.work for rung in later]
    return future_rungs(np.stack(rates, axis=1), counts, works, SurvivorDraws(weights))


def _survival_weights(state: StudyState, trials: list[TrialState]) -> FloatArray | None:
    """Return 1 / rank of each trial's value at the last progress that all have reported, (n,).

    None: some trial has reported nothing.
    """
    if not trials or any(not trial.progress.reports for trial in trials):
        return None
    sign = -1.0 if state.study.terms.directions[:1] == ("maximize",) else 1.0
    common = min(max(at for at, _ in trial.progress.reports) for trial in trials)
    values = []
    for trial in trials:
        reports = [(at, value) for at, value in trial.progress.reports if at <= common]
        values.append(sign * max(reports)[1] if reports else np.inf)
    order = np.argsort(np.nan_to_num(values, nan=np.inf), kind="stable")
    weights: FloatArray = 1.0 / (1.0 + np.argsort(order, kind="stable").astype(np.float64))
    return weights


def _kept(
    state: StudyState, plan: StudyPlan, decisions: dict[str, TrialDecision]
) -> dict[str, TrialDecision]:
    """Return trials at their barrier that keep their instances for the next rung.

    Trials that are likeliest to survive keep theirs, as far as free instances do not suffice.
    """
    standby = plan.standby
    if standby is None:
        return {}
    free = Counter(freed.offer for freed in state.free)[standby.offer]
    free -= sum(
        decision.target.instances
        for decision in decisions.values()
        if decision.action is TrialAction.TAKE_OVER
        and decision.target is not None
        and decision.target.offer == standby.offer
    )
    kept, left = {}, standby.keep - max(free, 0)
    waiting = [trial for trial in state.trials if trial.waits_for_decision]
    weights = _survival_weights(state, waiting)
    if weights is not None:
        waiting = [waiting[index] for index in np.argsort(-weights, kind="stable").tolist()]
    for trial in waiting:
        held = None if trial.held is None else state.supply.sizes[trial.held]
        if held is None or not trial.can_pause or held.offer != standby.offer:
            continue
        if held.instances <= left:
            left -= held.instances
            kept[trial.id] = holds(trial.id, held, f", at its barrier: {standby.reason}")
    return kept


def _at_rest(trial: TrialState, state: StudyState, barrier_seconds: float) -> TrialDecision:
    """Return the decision of a trial at its barrier, or of one that no size can run."""
    if not trial.waits_for_decision:
        return waits(trial.id, WaitCause.NO_OFFER, ": nothing that it may use is offered")
    if trial.held is not None and not trial.can_pause:
        held = state.supply.sizes[trial.held]
        return holds(trial.id, held, ", at its barrier: it would begin anew elsewhere")
    soon = f" for the barrier: the barrier is in {duration(barrier_seconds)}"
    return waits(trial.id, WaitCause.BARRIER, soon)


def _at_the_barrier(state: StudyState) -> StudyPlan:
    """Return the plan while all trials wait for their pruner.

    As many as the next rung has keep their instances for as long as a boot takes.
    """
    supply, later = state.supply, state.study.terms.later
    wanted = later[0].trials if later else 0
    reported = max((record.told_seconds for record in state.study.trials), default=-np.inf)
    decisions = []
    for trial in state.trials:
        held = None if trial.held is None else supply.sizes[trial.held]
        boots = 0.0 if trial.held is None else float(supply.boot_seconds[trial.held])
        if held is not None and not trial.can_pause:
            decisions.append(_at_rest(trial, state, 0.0))
        elif held is None or not wanted or state.now_seconds - reported > boots:
            decisions.append(waits(trial.id, WaitCause.BARRIER, " for its pruner"))
        else:
            wanted -= 1
            why = ": its pruner decides now, and the next rung needs it"
            decisions.append(holds(trial.id, held, why))
    return StudyPlan(tuple(decisions), barrier_seconds=Range(0.0, 0.0, 0.0, 0.0))


def _unchanged(state: StudyState, why: str) -> StudyPlan:
    """Return the plan where none was found: trials that train go on."""
    return StudyPlan(
        tuple(
            waits(trial.id, WaitCause.LIMITS, f": {why}")
            if trial.held is None or trial.waits_for_decision
            else holds(trial.id, state.supply.sizes[trial.held], f": {why}")
            for trial in state.trials
        )
    )
