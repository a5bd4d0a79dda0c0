"""The plan of an asynchronous search at a moment: breadth, within deadline, budget and limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.economics.studies.async_trials import (
    AsyncAction,
    AsyncDecision,
    AsyncTerms,
    AsyncTrial,
)
from autoscaler.economics.studies.at_once import AtOnce, trials_at_once
from autoscaler.economics.studies.breadth import plan_breadth
from autoscaler.economics.studies.goal import Purse, StudyGoal
from autoscaler.economics.studies.moment import StudyMoment, TrialAt
from autoscaler.economics.studies.prospect import prospects
from autoscaler.economics.studies.room import Room
from autoscaler.economics.studies.verdicts import StudyVerdict, TrialVerdict
from autoscaler.economics.studies.ways import size_of, way_usd
from autoscaler.economics.supply import BoolArray
from autoscaler.economics.wording import money
from autoscaler.goodput.throughput import FloatArray

_MOST_ROOM = 10_000


def plan_asynchronous(moment: StudyMoment, goal: StudyGoal) -> StudyVerdict:
    """What each trial holds until the next news; who waits is said to wait, and begins later."""
    room = _room(moment)
    at_once = trials_at_once(moment, goal, room)
    funded = _funded(moment, goal)
    goes_on = [
        one for one in moment.trials if one.held is not None and one.id not in funded.paused
    ]
    waiting = sorted(
        (one for one in moment.trials if one.held is None and one.can_train),
        key=lambda one: one.stands.progress <= 0,
    )
    refused = dict(funded.paused)
    admitted: list[TrialAt] = []
    for one in waiting:
        size = size_of(one, moment.supply)
        usd = 0.0 if size is None else way_usd(one, size, one.to_end, moment)
        if at_once.trials is not None and len(goes_on) + len(admitted) >= at_once.trials:
            refused[one.id] = at_once.why
        elif not funded.purse.bears(usd) and not _is_first_look(
            moment, funded.purse, [*goes_on, *admitted]
        ):
            refused[one.id] = funded.purse.refusal(usd)
        else:
            funded.purse.promise(usd)
            admitted.append(one)
    decided = _decided(moment, goal, goes_on, admitted)
    trials = tuple(_verdict(one, decided, refused) for one in moment.trials)
    return StudyVerdict(
        trials=trials,
        usd_per_second=goal.bid,
        bid=at_once.bid,
        seconds=at_once.seconds,
        note=_note(moment, at_once, funded, trials),
    )


def _is_first_look(moment: StudyMoment, purse: Purse, trains: Sequence[TrialAt]) -> bool:
    """Of what nobody knows, one may begin: what it costs is not known either."""
    return moment.is_blind and not trains and purse.is_open


@dataclass(frozen=True, slots=True)
class _Funded:
    """What the budget bears: who has to pause for others to come to their ends, and the rest."""

    purse: Purse
    paused: dict[str, str]
    shortfall: str | None


def _funded(moment: StudyMoment, goal: StudyGoal) -> _Funded:
    """The ways of those that train to their ends are promised first, the shortest before others.

    Where the budget does not bear all of them, as many as it bears come to their ends and the
    rest pause, if they go on where they were; the first goes on in any case.
    """
    purse = Purse(goal.left_usd)
    ways = sorted(
        (way_usd(one, one.held, one.to_end, moment), one.id, one.is_measured)
        for one in moment.trials
        if one.held is not None
    )
    paused: dict[str, str] = {}
    shortfall = None
    for place, (usd, trial, is_measured) in enumerate(ways):
        bears = purse.bears(usd)
        if not bears:
            needed = money(sum(each for each, _, _ in ways))
            shortfall = (
                f"{needed} bring all that train to their ends, {money(goal.left_usd or 0)} is left"
            )
        if bears or place == 0 or not is_measured or not moment.keeps_progress:
            purse.promise(usd)
        else:
            paused[trial] = f"{purse.refusal(usd)}; it goes on when there is more"
    return _Funded(purse, paused, shortfall)


def _decided(
    moment: StudyMoment,
    goal: StudyGoal,
    goes_on: Sequence[TrialAt],
    admitted: Sequence[TrialAt],
) -> dict[str, AsyncDecision]:
    """What the guards decide; one for which an offer has no room is asked for another."""
    every = [*goes_on, *admitted]
    terms = _terms(moment, goal)
    goodput = {one.id: np.median(one.goodput, axis=0) for one in every}
    values = prospects(moment, every) if _is_hurried(moment, goal, goes_on) else {}
    found: dict[str, AsyncDecision] = {}
    for _ in moment.supply.offers:
        asked = [
            _asked(moment, one, goodput[one.id], values.get(one.id))
            for one in every
            if (goodput[one.id] > 0).any()
        ]
        plan = plan_breadth(asked, moment.supply, terms)
        found = {one.trial: one for one in plan.decisions}
        fits = _fitting(moment, found)
        elsewhere = {
            one.id: goodput[one.id] * fits
            for one in admitted
            if found[one.id].action is AsyncAction.WAIT and not fits[goodput[one.id] > 0].all()
        }
        goodput |= {trial: left for trial, left in elsewhere.items() if (left > 0).any()}
        if not any((left > 0).any() for left in elsewhere.values()):
            break
    return found


def _asked(
    moment: StudyMoment,
    trial: TrialAt,
    goodput: FloatArray,
    values: tuple[FloatArray, FloatArray] | None,
) -> AsyncTrial:
    works, worth = values or (np.array([0.0, trial.to_end]), np.zeros((1, 2)))
    changed = trial.job.service.changed_seconds
    return AsyncTrial(
        trial.id,
        np.maximum(goodput, 0.0),
        trial.to_decision or trial.to_end,
        trial.to_end,
        worth,
        works,
        trial.held,
        np.inf if changed is None else moment.now_seconds - changed,
        decisions=int(trial.stands.progress >= moment.first_work),
        paid_seconds=trial.paid_seconds,
    )


def _terms(moment: StudyMoment, goal: StudyGoal) -> AsyncTerms:
    """The guards' terms. The budget is kept here: all that train are brought to their ends."""
    terms = moment.study.terms
    best = -np.inf
    if terms.best is not None:
        best = terms.best if terms.directions[:1] == ("maximize",) else -terms.best
    is_paid = {offer.id: offer.usd_per_second == 0 for offer in moment.supply.offers}
    freed = tuple(
        replace(one, paid_seconds=math.inf) if is_paid[one.offer] else one for one in moment.free
    )
    return AsyncTerms(best=best, deadline_seconds=goal.deadline_seconds, freed=freed)


def _is_hurried(moment: StudyMoment, goal: StudyGoal, trains: Sequence[TrialAt]) -> bool:
    """Whether one that trains would come too late to its next decision, and could grow."""
    if goal.deadline_seconds is None:
        return False
    for one in trains:
        rate = np.median(one.goodput, axis=0)
        held = one.held or 0
        work = one.to_decision or one.to_end
        if (
            rate[held] > 0
            and work / rate[held] > goal.deadline_seconds
            and rate.max() > rate[held]
        ):
            return True
    return False


def _fitting(moment: StudyMoment, decided: dict[str, AsyncDecision]) -> BoolArray:
    """For which sizes the limits leave room beside what was decided, (A,)."""
    supply, room = moment.supply, Room(moment.supply)
    free = Counter(one.offer for one in moment.free)
    used: Counter[str] = Counter()
    for decision in decided.values():
        if decision.size is not None:
            used[decision.size.offer] += decision.size.instances
    for offer in free.keys() | used.keys():
        room.take(supply.place_of[offer], max(free[offer], used[offer]))
    return np.array(
        [room.bears(supply.place_of[one.offer], one.instances) for one in supply.sizes],
        dtype=np.bool_,
    )


def _room(moment: StudyMoment) -> int:
    """How many more trials of the least size the limits bear, what is free included."""
    supply, room, count = moment.supply, Room(moment.supply), 0
    for one in moment.trials:
        if one.held is not None:
            room.take(int(supply.offer_of[one.held]), int(supply.instances[one.held]))
    usable = [
        size
        for size in np.argsort(supply.instances, kind="stable").tolist()
        if moment.fresh[size] > 0
    ]
    for size in usable:
        offer, instances = int(supply.offer_of[size]), int(supply.instances[size])
        while count < _MOST_ROOM and room.bears(offer, instances):
            if not supply.limits:
                return _MOST_ROOM
            room.take(offer, instances)
            count += 1
    return count


def _verdict(
    trial: TrialAt, decided: dict[str, AsyncDecision], refused: dict[str, str]
) -> TrialVerdict:
    if trial.id in refused:
        return TrialVerdict(trial.id, None, f"wait {trial.id}: {refused[trial.id]}")
    decision = decided.get(trial.id)
    if decision is not None:
        return TrialVerdict(trial.id, decision.size, decision.reason)
    if trial.held is not None and trial.job.held is not None:
        held = trial.job.held
        return TrialVerdict(trial.id, held, f"hold {trial.id} at {held}: nothing else is for it")
    return TrialVerdict(trial.id, None, f"wait {trial.id}: nothing that it may use is offered")


def _note(
    moment: StudyMoment, at_once: AtOnce, funded: _Funded, trials: Sequence[TrialVerdict]
) -> str | None:
    """Return what can't be kept; nothing is out of reach of trials that nobody has measured."""
    notes = [] if moment.is_blind else [at_once.shortfall, funded.shortfall]
    if trials and all(one.target is None for one in trials) and funded.purse.left_usd is not None:
        notes.append(f"{money(max(funded.purse.left_usd, 0.0))} of the budget is left")
    return "; ".join(each for each in notes if each) or None
