"""Choice of the time at which all trials of a rung reach their barrier.

Growing a trial never pays by itself: goodput is concave in instances, so a unit of work is
cheapest on the smallest size. Growth pays because all trials wait for the slowest at the barrier,
and the deadline makes that wait expensive. So the barrier T of the present rung is chosen by

    min_T  cost(T) + E[ V(deadline - T) ]

where cost(T) is the cost of the cheapest packing that is done by T. V is the cost of the later
rungs in the time that is left, in each draw by what will be known then (a program with recourse).
The slope of V is the multiplier of the deadline: the value of a second of the study. Slow trials
get more instances and fast ones fewer, as in water-filling.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autoscaler.economics.studies.constraints import StudyConstraints
from autoscaler.economics.studies.rungs.future_costs import FutureRungCosts, future_rung_costs
from autoscaler.economics.studies.rungs.packing import (
    PackingTask,
    RungPacking,
    keep,
    pack,
    packing_task,
)
from autoscaler.economics.studies.rungs.rung import Rung
from autoscaler.economics.studies.supply import StudySupply
from autoscaler.economics.supply.supply import BoolArray
from autoscaler.goodput.throughput import FloatArray

# Quantile of a trial's time that a packing plans with.
_CAUTION = 0.8
_BARRIERS = 16
_JUST_IN_TIME = 6
_NEAR = np.geomspace(0.88, 1.12, 6)
# Allocations are kept unless a change saves this share of all that is still to be paid.
_HYSTERESIS = 0.02
# Price of missing the constraints in one more draw of a hundred, in hundredths of the cheapest
# plan: a deadline that is all but lost must not be met at any price.
_MISS = 5.0
# A deadline that fewer draws can keep counts as the earliest one that this share can keep, or
# where none can keep it, as one that is later by this factor.
_OUT_OF_REACH = 0.5
_IN_REACH = 1.1
# Chances are estimated from few draws: a gain of this size is no reason to change.
_CHANCE_MARGIN = 0.1
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Filling:
    """A packing of the present rung with the outcome of the whole study in each draw.

    Attributes:
        packing: assignments of the present rung.
        seconds: until all rungs are done, (K,).
        usd: cost of all rungs, (K,).
        kept: whether the constraints are kept, (K,).
        next_instances: number of instances of the next rung, (K,).
        usd_per_second: value of one more second of study time.
    """

    packing: RungPacking
    seconds: FloatArray
    usd: FloatArray
    kept: BoolArray
    next_instances: FloatArray
    usd_per_second: float = 0.0

    @property
    def chance(self) -> float:
        """Share of draws in which the constraints are kept."""
        return float(self.kept.mean())


@dataclass(frozen=True, slots=True, eq=False)
class Prospects:
    """The chosen filling, and the bounds of what could have been chosen.

    Attributes:
        chosen: the chosen filling.
        chance: share of draws in which it keeps the study's own constraints.
        earliest: seconds until the study is done where cost does not matter, (K,).
        least_usd: cost of the study where time does not matter, (K,).
        possible: share of draws in which the constraints can be kept at all.
    """

    chosen: Filling
    chance: float
    earliest: FloatArray
    least_usd: FloatArray
    possible: float


def water_fill(rung: Rung, supply: StudySupply, constraints: StudyConstraints) -> Prospects:
    """Return the packing of the present rung that is best for the whole study.

    Raises:
        ValueError: there is no trial in the rung, or the limits leave no room for one.
    """
    if not rung.trials:
        raise ValueError("a rung without trials has nothing to plan")
    task = packing_task(rung, supply, _CAUTION)
    later = future_rung_costs(rung.future, supply, task.draws, _held_instances(rung, supply))
    barriers = np.concatenate([_barriers(task), _just_in_time(later, constraints)])
    fillings = _fillings(task, barriers, later, constraints)
    if not fillings:
        raise ValueError("the limits leave no room for a trial of this rung")
    possible = max(filling.chance for filling in fillings)
    within = _within_reach(fillings, later, constraints)
    if within is not constraints:
        fillings = [_filling(filling.packing, later, within) for filling in fillings]
        fillings += _fillings(task, _just_in_time(later, within), later, within)
    least_price = float(supply.usd_per_second.min())
    first = _best(fillings, within, least_price)
    fillings += _fillings(task, first.packing.barrier_seconds * _NEAR, later, within)
    chosen = _best(fillings, within, least_price)
    held = keep(task, chosen.packing.barrier_seconds) if len(task.running) else None
    if held is not None:
        fillings.append(_filling(held, later, within))
        chosen = _kept_if_as_good(fillings[-1], chosen, within)
    slope = _value_of_time(chosen, fillings, later, within)
    asked = [_filling(filling.packing, later, constraints) for filling in fillings]
    return Prospects(
        replace(chosen, usd_per_second=slope),
        float(_keeps(chosen.seconds, chosen.usd, constraints).mean()),
        _earliest(fillings, later),
        np.min([filling.packing.usd for filling in fillings], axis=0) + later.usd[:, -1],
        max(possible, *(filling.chance for filling in asked)),
    )


def _within_reach(
    fillings: list[Filling], later: FutureRungCosts, constraints: StudyConstraints
) -> StudyConstraints:
    """Return the constraints, their deadline postponed to one that half of the draws can keep.

    A deadline that seems out of reach may not be: the draws are few. And the later a study ends,
    the more it costs most owners. So it goes on as for the earliest deadline that is in reach.
    """
    if constraints.deadline_seconds is None:
        return constraints
    earliest = _earliest(fillings, later)
    possible = float((earliest <= constraints.deadline_seconds).mean())
    if possible >= _OUT_OF_REACH:
        return constraints
    in_reach = float(np.quantile(earliest, _OUT_OF_REACH, method="higher"))
    return replace(constraints, deadline_seconds=in_reach if possible else in_reach * _IN_REACH)


def _earliest(fillings: list[Filling], later: FutureRungCosts) -> FloatArray:
    """Return the seconds until the study is done where cost does not matter, (K,)."""
    soonest: FloatArray = np.min([filling.packing.seconds for filling in fillings], axis=0)
    return soonest + later.seconds[:, 0]


def _held_instances(rung: Rung, supply: StudySupply) -> int:
    """Return the number of instances that the study holds, or else will hold for this rung."""
    held = sum(
        int(supply.instances[trial.held]) for trial in rung.trials if trial.held is not None
    )
    held += sum(freed.instances for freed in rung.freed)
    return held or (rung.future[0].work.shape[1] if rung.future else 0)


def _barriers(task: PackingTask) -> FloatArray:
    """Return barriers worth a packing: where a choice changes, or evenly while trials wait."""
    cautious = task.changes.cautious
    least = cautious.min(axis=1).max(initial=0.0)
    if not len(task.waiting):
        cheapest = task.changes.usd.argmin(axis=1)
        most = max(cautious[np.arange(len(cheapest)), cheapest].max(), least)
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


def _just_in_time(later: FutureRungCosts, constraints: StudyConstraints) -> FloatArray:
    """Return barriers that leave the later rungs the time they take at some multipliers."""
    if constraints.deadline_seconds is None:
        return np.zeros(0)
    places = np.linspace(0, later.seconds.shape[1] - 1, _JUST_IN_TIME).astype(np.int64)
    left: FloatArray = constraints.deadline_seconds - np.median(later.seconds, axis=0)[places]
    return np.unique(left[left > 0])


def _fillings(
    task: PackingTask, barriers: FloatArray, later: FutureRungCosts, constraints: StudyConstraints
) -> list[Filling]:
    packings: dict[object, RungPacking] = {}
    for barrier in barriers.tolist():
        packing = pack(task, barrier)
        if packing is not None:
            packings.setdefault(packing.assignments, packing)
    return [_filling(packing, later, constraints) for packing in packings.values()]


def _filling(
    packing: RungPacking, later: FutureRungCosts, constraints: StudyConstraints
) -> Filling:
    """Return the outcome of a packing, the later rungs as fast as the constraints need them."""
    deadline, budget = constraints.deadline_seconds, constraints.budget_usd
    if deadline is None and budget is not None:
        money = np.maximum(budget - packing.usd, 0.0)
        left = later.seconds_within(money[:, None])[:, 0]
    else:
        left = later.seconds[:, later.at(constraints.usd_per_second)]
    if deadline is not None:
        left = np.minimum(left, deadline - packing.seconds)
    left = np.maximum(left, later.seconds[:, 0])
    usd = packing.usd + later.usd_within(left[:, None])[:, 0]
    seconds = packing.seconds + left
    kept = _keeps(seconds, usd, constraints)
    return Filling(packing, seconds, usd, kept, later.instances_within(left))


def _keeps(seconds: FloatArray, usd: FloatArray, constraints: StudyConstraints) -> BoolArray:
    """Return in which draws deadline and budget are kept, (K,)."""
    kept = np.ones(len(seconds), dtype=np.bool_)
    if constraints.deadline_seconds is not None:
        kept &= seconds <= constraints.deadline_seconds * (1.0 + _ROUNDING)
    if constraints.budget_usd is not None:
        kept &= usd <= constraints.budget_usd * (1.0 + _ROUNDING)
    return kept


def _best(fillings: list[Filling], constraints: StudyConstraints, least_price: float) -> Filling:
    """Return the filling of least cost, misses of the constraints counted at their price.

    Where no draw keeps the constraints, a second costs what the study pays for one. Prices are at
    least `least_price`, $ a second, also where all instances are paid for.
    """
    asked = constraints.confidence * max(filling.chance for filling in fillings)
    if asked == 0.0:
        cheapest = min(fillings, key=lambda filling: float(filling.usd.mean()))
        late = max(float(cheapest.usd.mean() / cheapest.seconds.mean()), least_price)
        constraints = StudyConstraints(usd_per_second=max(late, constraints.usd_per_second))
    least = min(_score(filling, constraints) for filling in fillings)
    least = max(least, least_price * min(float(filling.seconds.mean()) for filling in fillings))

    def cost(filling: Filling) -> float:
        missed = max(asked - filling.chance, 0.0)
        return _score(filling, constraints) + _MISS * least * missed

    return min(fillings, key=cost)


def _score(filling: Filling, constraints: StudyConstraints) -> float:
    """Return the quantity to minimise: cost and the worth of time, or seconds under a budget."""
    seconds, usd = float(filling.seconds.mean()), float(filling.usd.mean())
    if constraints.budget_usd is not None and constraints.deadline_seconds is None:
        return seconds
    return usd + constraints.usd_per_second * seconds


def _kept_if_as_good(held: Filling, best: Filling, constraints: StudyConstraints) -> Filling:
    """Return the present allocations, or the best ones where these are better by a margin."""
    if held.chance < min(constraints.confidence, best.chance) - _CHANCE_MARGIN:
        return best
    limit = _score(best, constraints) * (1.0 + _HYSTERESIS)
    return held if _score(held, constraints) <= limit else best


def _value_of_time(
    chosen: Filling,
    fillings: list[Filling],
    later: FutureRungCosts,
    constraints: StudyConstraints,
) -> float:
    """Return the $ that one second more would save in later rungs, or in the last one."""
    asked = constraints.usd_per_second
    if constraints.deadline_seconds is None and constraints.budget_usd is None:
        return asked
    if later.seconds[:, -1].any():
        slopes = later.value_of_time(chosen.seconds - chosen.packing.seconds)
        return max(float(slopes[chosen.kept].mean()) if chosen.kept.any() else 0.0, asked)
    seconds, usd = float(chosen.seconds.mean()), float(chosen.usd.mean())
    savings = [
        (usd - float(filling.usd.mean())) / (float(filling.seconds.mean()) - seconds)
        for filling in fillings
        if float(filling.seconds.mean()) > seconds + _ROUNDING
    ]
    return max([asked, *savings])
