"""Water-filling to the barrier: slow trials get more instances, fast ones fewer.

Growing a trial never pays by itself: goodput is concave in instances, so a unit of work is
cheapest at the smallest size. What pays for more is the barrier, where all wait for the slowest,
and what makes that wait dear is the deadline. So the barrier T of the present rung is chosen by

    min_T  cost(T) + E[ V(deadline - T) ]

where cost(T) is the cheapest packing that is done by T and V what later rungs cost in the time
that is left, each draw by what will be known then (a program with recourse). The slope of V is the
multiplier of the deadline: what a second of the study is worth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autoscaler.economics.studies.constraints import StudyConstraints
from autoscaler.economics.studies.future import Hereafter, hereafter
from autoscaler.economics.studies.packing import Packing, PackingTask, keep, pack, packing_task
from autoscaler.economics.studies.rung import Rung, StudySupply
from autoscaler.economics.supply import BoolArray
from autoscaler.goodput.throughput import FloatArray

# What a trial passes in one of five draws stands for its time when it is packed.
_CAUTION = 0.8
_BARRIERS = 16
_JUST_IN_TIME = 6
_NEAR = np.geomspace(0.88, 1.12, 6)
# What is held is kept unless this share of all that is still to be paid is saved.
_HYSTERESIS = 0.02
# To keep the aim in one draw of a hundred more may cost so many hundredths of the cheapest study:
# a deadline that is all but lost does not take whatever there is.
_MISS = 5.0
# A deadline that not even half of the draws can keep is taken for one that they can; if none can,
# later by so much that it is not the last second of what is possible that is paid for.
_OUT_OF_REACH = 0.5
_IN_REACH = 1.1
# A chance is known from few draws: so much more of it is no reason to change.
_NO_SURER = 0.1
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Filling:
    """A packing of the present rung, and what it means for the study in each draw.

    Attributes:
        packing: who holds what.
        seconds: when all rungs are done, (K,).
        usd: what they cost, (K,).
        kept: whether the deadline and the budget that it was chosen for are, (K,).
        next_instances: what the next rung begins with, (K,).
        usd_per_second: what a second more for the study would save.
    """

    packing: Packing
    seconds: FloatArray
    usd: FloatArray
    kept: BoolArray
    next_instances: FloatArray
    usd_per_second: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Prospects:
    """What was chosen, beside what else there was.

    Attributes:
        chosen: the filling that counts.
        chance: that with it the study's own deadline and budget are kept.
        earliest: when the study is done if nothing is too dear, (K,).
        least_usd: what it costs if nothing is too late, (K,).
        possible: the share of draws in which deadline and budget can be kept at all.
    """

    chosen: Filling
    chance: float
    earliest: FloatArray
    least_usd: FloatArray
    possible: float


def water_fill(rung: Rung, supply: StudySupply, aim: StudyConstraints) -> Prospects:
    """Return the packing of the present rung that is best for the whole study.

    Raises:
        ValueError: there is no trial in the rung, or the limits leave no room for one.
    """
    if not rung.trials:
        raise ValueError("a rung without trials has nothing to plan")
    task = packing_task(rung, supply, _CAUTION)
    later = hereafter(rung.future, supply, task.draws, _at_hand(rung, supply))
    barriers = np.concatenate([_barriers(task), _just_in_time(later, aim)])
    fillings = _fillings(task, barriers, later, aim)
    if not fillings:
        raise ValueError("the limits leave no room for a trial of this rung")
    possible = max(float(one.kept.mean()) for one in fillings)
    within = _within_reach(fillings, later, aim)
    if within is not aim:
        fillings = [_filling(one.packing, later, within) for one in fillings]
        fillings += _fillings(task, _just_in_time(later, within), later, within)
    least = float(supply.usd_per_second.min())
    first = _best(fillings, within, least)
    around = first.packing.barrier_seconds * _NEAR
    fillings += _fillings(task, around, later, within)
    chosen = _best(fillings, within, least)
    held = keep(task, chosen.packing.barrier_seconds) if len(task.running) else None
    if held is not None:
        fillings.append(_filling(held, later, within))
        chosen = _kept_if_as_good(fillings[-1], chosen, within)
    slope = _value_of_time(chosen, fillings, later, within)
    asked = fillings if within is aim else [_filling(one.packing, later, aim) for one in fillings]
    return Prospects(
        replace(chosen, usd_per_second=slope),
        float(_kept(chosen.seconds, chosen.usd, aim).mean()),
        _earliest(fillings, later),
        np.min([one.packing.usd for one in fillings], axis=0) + later.usd[:, -1],
        max(possible, *(float(one.kept.mean()) for one in asked)),
    )


def _within_reach(
    fillings: list[Filling], later: Hereafter, aim: StudyConstraints
) -> StudyConstraints:
    """The aim, its deadline put off to where half of the draws can keep one.

    What seems out of reach may not be: the draws are few. And the later the dearer it is to most.
    So the study goes on as for the last deadline that is in reach, until its own has passed.
    """
    if aim.deadline_seconds is None:
        return aim
    earliest = _earliest(fillings, later)
    possible = float((earliest <= aim.deadline_seconds).mean())
    if possible >= _OUT_OF_REACH:
        return aim
    in_reach = float(np.quantile(earliest, _OUT_OF_REACH, method="higher"))
    return replace(aim, deadline_seconds=in_reach if possible else in_reach * _IN_REACH)


def _earliest(fillings: list[Filling], later: Hereafter) -> FloatArray:
    """When the study is done if nothing is too dear, (K,)."""
    soonest: FloatArray = np.min([one.packing.seconds for one in fillings], axis=0)
    return soonest + later.seconds[:, 0]


def _at_hand(rung: Rung, supply: StudySupply) -> int:
    held = sum(int(supply.instances[one.held]) for one in rung.trials if one.held is not None)
    held += sum(one.instances for one in rung.freed)
    return held or (rung.future[0].work.shape[1] if rung.future else 0)


def _barriers(task: PackingTask) -> FloatArray:
    """Barriers worth a packing: where a trial's choice changes, or evenly if some wait."""
    cautious = task.changes.cautious
    least = cautious.min(axis=1).max(initial=0.0)
    if not len(task.waiting):
        cheapest = task.changes.usd.argmin(axis=1)
        most = max(task.changes.cautious[np.arange(len(cheapest)), cheapest].max(), least)
        points: FloatArray = np.unique(cautious[(cautious >= least) & (cautious <= most)])
        if len(points) > _BARRIERS:
            points = points[np.linspace(0, len(points) - 1, _BARRIERS).astype(np.int64)]
        return points
    fastest = task.idle.cautious.min(axis=1)
    starts = task.supply.boot_seconds + task.supply.switching.start_seconds
    one_by_one = task.idle.cautious[:, task.idle.usd.sum(axis=0).argmin()].sum()
    handovers = task.supply.switching.handover_seconds * len(task.waiting)
    least = max(least, float(fastest.max()))
    most = max(least, float(cautious.max(axis=1, initial=0.0).max(initial=0.0)))
    return np.geomspace(least, most + one_by_one + handovers + starts.max(), _BARRIERS)


def _just_in_time(later: Hereafter, aim: StudyConstraints) -> FloatArray:
    """Barriers that leave later rungs just the time they take, at some of their multipliers."""
    if aim.deadline_seconds is None:
        return np.zeros(0)
    places = np.linspace(0, later.seconds.shape[1] - 1, _JUST_IN_TIME).astype(np.int64)
    left: FloatArray = aim.deadline_seconds - np.median(later.seconds, axis=0)[places]
    return np.unique(left[left > 0])


def _fillings(
    task: PackingTask, barriers: FloatArray, later: Hereafter, aim: StudyConstraints
) -> list[Filling]:
    packings: dict[object, Packing] = {}
    for barrier in barriers.tolist():
        packing = pack(task, barrier)
        if packing is not None:
            packings.setdefault(packing.places, packing)
    return [_filling(packing, later, aim) for packing in packings.values()]


def _filling(packing: Packing, later: Hereafter, aim: StudyConstraints) -> Filling:
    """The study after this packing: later rungs as fast as aim and deadline ask, draw by draw."""
    present = packing.seconds
    if aim.deadline_seconds is None and aim.budget_usd is not None:
        money = np.maximum(aim.budget_usd - packing.usd, 0.0)
        then = later.seconds_within(money[:, None])[:, 0]
    else:
        then = later.seconds[:, later.at(aim.usd_per_second)]
    if aim.deadline_seconds is not None:
        then = np.minimum(then, aim.deadline_seconds - present)
    then = np.maximum(then, later.seconds[:, 0])
    usd = packing.usd + later.usd_within(then[:, None])[:, 0] - _passed_on(packing, later, then)
    seconds = present + then
    kept = _kept(seconds, usd, aim)
    return Filling(packing, seconds, usd, kept, later.instances_within(then))


def _kept(seconds: FloatArray, usd: FloatArray, aim: StudyConstraints) -> BoolArray:
    """In which draws deadline and budget are kept, (K,)."""
    kept = np.ones(len(seconds), dtype=np.bool_)
    if aim.deadline_seconds is not None:
        kept &= seconds <= aim.deadline_seconds * (1.0 + _ROUNDING)
    if aim.budget_usd is not None:
        kept &= usd <= aim.budget_usd * (1.0 + _ROUNDING)
    return kept


def _passed_on(packing: Packing, later: Hereafter, then: FloatArray) -> FloatArray:
    """What the next rung saves by instances that are still paid for when it begins, (K,).

    Each that it takes over bears its part of what the rung costs, the longest paid first.
    """
    saved = np.zeros(len(then))
    counts = [(until, count) for count, until in packing.paid if until > packing.barrier_seconds]
    if not counts:
        return saved
    held = later.instances_within(then)
    took, usd = later.next_within(then)
    part = usd / np.maximum(held * took, _ROUNDING)
    for until, count in sorted(counts, reverse=True):
        used = np.clip(held, 0.0, count)
        saved += part * used * np.clip(until - packing.seconds, 0.0, took)
        held = held - used
    return saved


def _best(fillings: list[Filling], aim: StudyConstraints, usd_per_second: float) -> Filling:
    """The best, where a draw less than the aim asks, of those that can be kept, has its price.

    Where none can be kept, a second is worth what the study pays for one. Both are no less than
    at `usd_per_second`, the least that anything costs: also where all is paid for already.
    """
    chances = [float(one.kept.mean()) for one in fillings]
    asked = aim.confidence * max(chances)
    if max(chances) == 0.0:
        cheapest = min(fillings, key=lambda one: float(one.usd.mean()))
        late = max(float(cheapest.usd.mean() / cheapest.seconds.mean()), usd_per_second)
        aim = StudyConstraints(usd_per_second=max(late, aim.usd_per_second))
    least = min(_score(one, aim) for one in fillings)
    least = max(least, usd_per_second * min(float(one.seconds.mean()) for one in fillings))

    def cost(one: Filling) -> float:
        return _score(one, aim) + _MISS * least * max(asked - float(one.kept.mean()), 0.0)

    return min(fillings, key=cost)


def _score(filling: Filling, aim: StudyConstraints) -> float:
    """What is to be small: money and time's worth; seconds where money alone is the bound."""
    seconds, usd = float(filling.seconds.mean()), float(filling.usd.mean())
    if aim.budget_usd is not None and aim.deadline_seconds is None:
        return seconds
    return usd + aim.usd_per_second * seconds


def _kept_if_as_good(held: Filling, best: Filling, aim: StudyConstraints) -> Filling:
    """What is held, unless the best keeps the aim more surely or is better by a margin."""
    enough = min(aim.confidence, float(best.kept.mean())) - _NO_SURER
    if float(held.kept.mean()) < enough:
        return best
    return held if _score(held, aim) <= _score(best, aim) * (1.0 + _HYSTERESIS) else best


def _value_of_time(
    chosen: Filling, fillings: list[Filling], later: Hereafter, aim: StudyConstraints
) -> float:
    """$ that one second more would save later, or in the last rung by a slower packing."""
    asked = aim.usd_per_second
    if aim.deadline_seconds is None and aim.budget_usd is None:
        return asked
    if later.seconds[:, -1].any():
        slopes = later.value_of_time(chosen.seconds - chosen.packing.seconds)
        return max(float(slopes[chosen.kept].mean()) if chosen.kept.any() else 0.0, asked)
    seconds, usd = float(chosen.seconds.mean()), float(chosen.usd.mean())
    saves = [
        (usd - float(one.usd.mean())) / (float(one.seconds.mean()) - seconds)
        for one in fillings
        if float(one.seconds.mean()) > seconds + _ROUNDING
    ]
    return max([asked, *saves])
