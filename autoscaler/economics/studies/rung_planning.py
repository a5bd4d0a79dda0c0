"""The plan of a synchronous search at a moment: its trials up to their barrier."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.studies.goal import Purse, StudyGoal
from autoscaler.economics.studies.moment import StudyMoment, TrialAt
from autoscaler.economics.studies.present_first import with_present_first
from autoscaler.economics.studies.rung import (
    FreedInstances,
    FutureRung,
    Rung,
    RungTrial,
    SurvivorDraws,
    future_rungs,
)
from autoscaler.economics.studies.scaling_looks import with_scaling_looks
from autoscaler.economics.studies.study_plan import (
    StudyAim,
    StudyPlan,
    TrialAction,
    TrialDecision,
)
from autoscaler.economics.studies.synchronous import plan_rung
from autoscaler.economics.studies.verdicts import StudyVerdict, TrialVerdict
from autoscaler.economics.studies.ways import size_of, way_usd
from autoscaler.economics.supply import SECONDS_PER_HOUR
from autoscaler.economics.wording import duration
from autoscaler.goodput.throughput import FloatArray

_LEAST_SECONDS = 1.0
_ROUNDING = 1e-9
# Of the time left so much is kept for what no draw knows of: measurements are as far off.
_RESERVE = 0.03
# Of the trials that are to begin with the others, so many are planned for.
_MOST_TO_BEGIN = 60
_HOLDS = (TrialAction.HOLD, TrialAction.RESIZE, TrialAction.START, TrialAction.TAKE_OVER)


def plan_synchronous(moment: StudyMoment, goal: StudyGoal) -> StudyVerdict:
    """What each trial holds until the next news; at its barrier only what the next rung wants."""
    racing = [one for one in moment.trials if not one.waits_for_decision and one.can_train]
    if not racing:
        return _at_the_barrier(moment)
    moment = _with_room_to_race(moment, racing)
    rung = _rung(moment, racing)
    aim = StudyAim(
        deadline_seconds=_at_least(goal.deadline_seconds),
        budget_usd=goal.left_usd,
        usd_per_hour=_hourly_worth(goal),
        confidence=goal.confidence,
    )
    try:
        plan = plan_rung(rung, moment.supply, aim)
    except ValueError as error:
        return _as_it_is(moment, str(error))
    plan = with_present_first(plan, racing, moment.supply.sizes)
    plan = with_scaling_looks(plan, moment)
    decided = {one.trial: one for one in plan.decisions}
    paid = _Paid(moment, goal)
    verdicts = {one.id: paid.verdict(one, decided[one.id]) for one in _holders_first(racing)}
    verdicts |= _kept(moment, plan, decided) | _readied(moment, plan, paid.purse)
    trials = tuple(
        verdicts.get(one.id) or _rests(one, plan.barrier_seconds.median) for one in moment.trials
    )
    held = sum(one.target.instances for one in trials if one.target is not None)
    worth = plan.usd_per_hour / SECONDS_PER_HOUR
    standby = plan.standby
    is_later = standby is not None and standby.order and standby.order_in_seconds > _LEAST_SECONDS
    return StudyVerdict(
        trials=trials,
        usd_per_second=worth,
        bid=max(worth, goal.bid if goal.deadline_seconds is not None else 0.0) / max(held, 1),
        seconds=plan.seconds.median,
        barrier_seconds=plan.barrier_seconds.median,
        chance=plan.chance,
        note=None if moment.is_blind else plan.shortfall,
        again_seconds=standby.order_in_seconds if standby is not None and is_later else None,
    )


@dataclass(slots=True)
class _Paid:
    """Turns decisions into verdicts as far as the budget bears them, one after the other."""

    moment: StudyMoment
    purse: Purse
    is_begun: bool
    begins_none: bool

    def __init__(self, moment: StudyMoment, goal: StudyGoal) -> None:
        self.moment, self.purse = moment, Purse(goal.left_usd)
        self.begins_none = goal.begins_none
        for one in moment.trials:
            if one.held is not None:
                self.purse.promise(way_usd(one, one.held, one.to_decision, moment))
        self.is_begun = any(one.held is not None for one in moment.trials)

    @property
    def _is_first_look(self) -> bool:
        """Of what nobody knows, one may begin: what it costs is not known either."""
        return self.moment.is_blind and not self.is_begun and self.purse.is_open

    def verdict(self, trial: TrialAt, decision: TrialDecision) -> TrialVerdict:
        """The decision, unless it takes more money than there is beside those that train."""
        if decision.action not in _HOLDS:
            return TrialVerdict(trial.id, None, decision.reason)
        if trial.held is None and self.begins_none:
            return self._stays(trial, "after the deadline no trial begins")
        size = self.moment.supply.sizes.index(decision.size)
        if not (trial.goodput[:, size] > 0).all():
            return self._stays(trial, "what it would go to is not for it")
        if size == trial.held:
            return TrialVerdict(trial.id, decision.size, decision.reason)
        usd = way_usd(trial, size, trial.to_decision, self.moment)
        if trial.held is not None:
            usd -= way_usd(trial, trial.held, trial.to_decision, self.moment)
        if not self.purse.bears(usd) and not self._is_first_look:
            return self._stays(trial, self.purse.refusal(usd))
        self.is_begun = True
        self.purse.promise(max(usd, 0.0))
        return TrialVerdict(trial.id, decision.size, decision.reason)

    def _stays(self, trial: TrialAt, why: str) -> TrialVerdict:
        if trial.held is None:
            return TrialVerdict(trial.id, None, f"wait {trial.id}: {why}")
        size = self.moment.supply.sizes[trial.held]
        return TrialVerdict(trial.id, size, f"hold {trial.id} at {size}: {why}")


def _with_room_to_race(moment: StudyMoment, racing: list[TrialAt]) -> StudyMoment:
    """The moment without the room that trials at their barrier hold and can't give back.

    Where that leaves none and nobody races, they give way and begin anew later: or none of those
    that they wait for would ever come.
    """
    stuck = [
        one
        for one in moment.trials
        if one.waits_for_decision and one.held is not None and not one.frees
    ]
    if not stuck:
        return moment
    supply, held = moment.supply, Counter[int]()
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
        return replace(moment, supply=replace(supply, limits=tuple(limits)))
    gives_way = {one.id for one in stuck}
    return replace(
        moment,
        trials=tuple(
            replace(one, stands=replace(one.stands, pauses=True)) if one.id in gives_way else one
            for one in moment.trials
        ),
    )


def _rung(moment: StudyMoment, racing: list[TrialAt]) -> Rung:
    trials = [
        RungTrial(
            one.id,
            one.to_decision,
            one.goodput,
            one.held,
            one.ready_seconds if one.held is not None else 0.0,
            one.paid_seconds if one.held is not None else 0.0,
            one.is_measured,
        )
        for one in racing
    ]
    draws = len(racing[0].goodput)
    to_begin = trials_to_begin(moment)
    fresh = np.tile(moment.fresh, (draws, 1))
    if not (moment.fresh > 0).any():
        to_begin = 0
    trials += [
        RungTrial(
            f"trial {number + 1} of those to begin", moment.first_work, fresh, is_measured=False
        )
        for number in range(to_begin)
    ]
    freed = moment.free + tuple(
        FreedInstances(size.offer, size.instances, one.paid_seconds, one.ready_seconds)
        for one in moment.trials
        if one.waits_for_decision and one.held is not None and one.frees
        for size in (moment.supply.sizes[one.held],)
    )
    return Rung(
        tuple(trials),
        freed,
        _future(moment, to_begin),
        may_pause=moment.keeps_progress,
        may_swap=moment.keeps_progress and _is_settled(moment),
        is_reluctant=True,
    )


def _is_settled(moment: StudyMoment) -> bool:
    """Whether what was decided has come about, and has lasted for as long as it took to.

    Until then nobody changes places: each plan finds another order that is as good.
    """
    if moment.free:
        return False
    for one in moment.trials:
        if one.held is None:
            continue
        begun = one.job.ordered_seconds
        took = float(moment.supply.boot_seconds[one.held]) + moment.supply.switching.start_seconds
        lasts = moment.now_seconds - (moment.now_seconds if begun is None else begun)
        if one.job.trained != one.job.held or lasts < 2.0 * took:
            return False
    return True


def trials_to_begin(moment: StudyMoment) -> int:
    """How many trials that have not begun belong to this rung.

    A search in groups has more to begin than that. How large a group is follows from the next
    rung: trials go from `decided_at` as far as one in eta goes on to.
    """
    terms = moment.study.terms
    if not terms.to_begin or not terms.later:
        return 0
    eta = 1.0 + terms.later[0].work / moment.first_work
    missing = round(terms.later[0].trials * eta) - len(moment.trials)
    return min(max(missing, 0), terms.to_begin, _MOST_TO_BEGIN)


def _future(moment: StudyMoment, to_begin: int) -> tuple[FutureRung, ...]:
    later = moment.study.terms.later
    able = [one for one in moment.trials if one.can_train]
    rates = np.stack([one.later_goodput for one in able] + [moment.later_fresh] * to_begin, axis=1)
    weights = None if to_begin else _weights(moment, able)
    counts, works = [rung.trials for rung in later], [rung.work for rung in later]
    return future_rungs(rates, counts, works, SurvivorDraws(weights))


def _weights(moment: StudyMoment, trials: list[TrialAt]) -> FloatArray | None:
    """How likely each is to survive: by its place at the last progress that all have told of."""
    if not trials or any(not one.stands.reports for one in trials):
        return None
    sign = -1.0 if moment.study.terms.directions[:1] == ("maximize",) else 1.0
    common = min(max(at for at, _ in one.stands.reports) for one in trials)
    values = []
    for one in trials:
        told = [(at, value) for at, value in one.stands.reports if at <= common]
        values.append(sign * max(told)[1] if told else np.inf)
    place = np.argsort(np.argsort(np.nan_to_num(values, nan=np.inf), kind="stable"), kind="stable")
    weights: FloatArray = 1.0 / (1.0 + place.astype(np.float64))
    return weights


def _kept(
    moment: StudyMoment, plan: StudyPlan, decided: dict[str, TrialDecision]
) -> dict[str, TrialVerdict]:
    """Trials at their barrier that keep what they hold: a boot for the next rung takes longer."""
    standby = plan.standby
    if standby is None or not standby.keep:
        return {}
    free = Counter(one.offer for one in moment.free)[standby.offer]
    free -= sum(
        one.size.instances
        for one in decided.values()
        if one.action is TrialAction.TAKE_OVER and one.size.offer == standby.offer
    )
    kept, left = {}, standby.keep - max(free, 0)
    for one in _by_promise(moment):
        held = None if one.held is None else moment.supply.sizes[one.held]
        if held is None or not one.frees or held.offer != standby.offer or held.instances > left:
            continue
        left -= held.instances
        kept[one.id] = TrialVerdict(
            one.id, held, f"hold {one.id} at {held}, at its barrier: {standby.reason}"
        )
    return kept


def _readied(moment: StudyMoment, plan: StudyPlan, purse: Purse) -> dict[str, TrialVerdict]:
    """Trials at their barrier that are given something a boot before it, the most promising first.

    What is ordered ahead is so ordered for those that are likely to want it.
    """
    standby = plan.standby
    if standby is None or not standby.order or standby.order_in_seconds > _LEAST_SECONDS:
        return {}
    readied, left = {}, standby.order
    for one in _by_promise(moment):
        sizes = [
            size
            for place, size in enumerate(moment.supply.sizes)
            if size.offer == standby.offer and (one.goodput[:, place] > 0).all()
        ]
        least = min(sizes, key=lambda size: size.instances, default=None)
        if one.held is not None or least is None or least.instances > left:
            continue
        usd = way_usd(one, moment.supply.sizes.index(least), 0.0, moment)
        if not purse.bears(usd):
            continue
        purse.promise(usd)
        left -= least.instances
        readied[one.id] = TrialVerdict(
            one.id, least, f"start {one.id} on {least}, ahead: {standby.reason}"
        )
    return readied


def _by_promise(moment: StudyMoment) -> list[TrialAt]:
    """Those that wait at their barrier, who is likeliest to survive first."""
    there = [one for one in moment.trials if one.waits_for_decision]
    weights = _weights(moment, there)
    if weights is None:
        return there
    order = np.argsort(-weights, kind="stable")
    return [there[place] for place in order.tolist()]


def _rests(trial: TrialAt, barrier_seconds: float) -> TrialVerdict:
    """A trial that has come to its barrier, or for which there is no size."""
    held = trial.job.held
    if not trial.waits_for_decision:
        return TrialVerdict(trial.id, None, f"wait {trial.id}: nothing that it may use is offered")
    if trial.held is not None and held is not None and not trial.frees:
        reason = f"hold {trial.id} at {held}, at its barrier: it would begin anew elsewhere"
        return TrialVerdict(trial.id, held, reason)
    soon = f"the barrier is in {duration(barrier_seconds)}"
    return TrialVerdict(trial.id, None, f"wait {trial.id} for the barrier: {soon}")


def _at_the_barrier(moment: StudyMoment) -> StudyVerdict:
    """All wait for their pruner: what the next rung wants is kept for as long as a boot takes."""
    supply, later = moment.supply, moment.study.terms.later
    wanted = later[0].trials if later else 0
    told = max((one.told_seconds for one in moment.study.trials), default=-np.inf)
    trials = []
    for one in moment.trials:
        held = None if one.held is None else supply.sizes[one.held]
        boots = 0.0 if one.held is None else float(supply.boot_seconds[one.held])
        if held is not None and not one.frees:
            trials.append(_rests(one, 0.0))
            continue
        if held is None or not wanted or moment.now_seconds - told > boots:
            trials.append(TrialVerdict(one.id, None, f"wait {one.id} for its pruner"))
            continue
        wanted -= 1
        reason = f"hold {one.id} at {held}: its pruner decides now, and the next rung wants it"
        trials.append(TrialVerdict(one.id, held, reason))
    return StudyVerdict(tuple(trials), barrier_seconds=0.0)


def _as_it_is(moment: StudyMoment, why: str) -> StudyVerdict:
    """No plan was found: who trains goes on."""
    trials = []
    for one in moment.trials:
        size = size_of(one, moment.supply) if one.held is not None else None
        target: Allocation | None = None
        reason = f"wait {one.id}: {why}"
        if size is not None and not one.waits_for_decision:
            target = moment.supply.sizes[size]
            reason = f"hold {one.id} at {target}: {why}"
        trials.append(TrialVerdict(one.id, target, reason))
    return StudyVerdict(tuple(trials))


def _holders_first(trials: list[TrialAt]) -> list[TrialAt]:
    return sorted(trials, key=lambda one: one.held is None)


def _hourly_worth(goal: StudyGoal) -> float:
    if goal.deadline_seconds is not None or goal.left_usd is not None:
        return 0.0
    return goal.value_of_time * SECONDS_PER_HOUR


def _at_least(deadline_seconds: float | None) -> float | None:
    """What is planned for: less than there is, by what measurements are off."""
    if deadline_seconds is None:
        return None
    return max((1.0 - _RESERVE) * deadline_seconds, _LEAST_SECONDS)
