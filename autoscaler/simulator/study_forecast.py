"""What a study would come to: many simulations of it as bands, beside pools of fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.offer import Limit, Offer, Purchase
from autoscaler.simulator.drawn_trials import quantiles
from autoscaler.simulator.simulated_study import SimulatedStudy
from autoscaler.simulator.static_pools import Pool, PoolRun, run_on_pool
from autoscaler.simulator.study_results import StudyResult

_SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128)


@dataclass(frozen=True, slots=True)
class Band:
    """What 5 %, half and 95 % of the runs are at most."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """Cost and finish over all runs, and the share of runs that keep to the objective.

    `in_time` is None without a deadline, `in_budget` without a budget. A run that its budget or
    its deadline has ended before all its trials had, is not kept to.
    """

    usd: Band
    seconds: Band
    in_time: float | None
    in_budget: float | None

    @property
    def chance(self) -> float:
        """Of keeping to the more doubtful one."""
        return min(
            (each for each in (self.in_time, self.in_budget) if each is not None), default=1
        )


@dataclass(frozen=True, slots=True)
class RungOutlook:
    """How many trials come to a rung; the last one is the end."""

    step: float
    trials: Band


@dataclass(frozen=True, slots=True)
class PoolOutlook:
    """`size` instances of an offer, held all the time."""

    offer: str
    size: int
    outlook: Outlook


def outlook(runs: Sequence[PoolRun], objective: Objective, are_whole: Sequence[bool]) -> Outlook:
    """The runs as bands; those that are not whole were ended before their end."""
    deadline, budget = objective.deadline_seconds, objective.budget_usd
    in_time = [
        whole and (deadline is None or run.seconds <= deadline)
        for run, whole in zip(runs, are_whole, strict=True)
    ]
    in_budget = [
        whole and (budget is None or run.usd <= float(budget))
        for run, whole in zip(runs, are_whole, strict=True)
    ]
    return Outlook(
        usd=Band(*quantiles([run.usd for run in runs])),
        seconds=Band(*quantiles([run.seconds for run in runs])),
        in_time=None if deadline is None else sum(in_time) / len(runs),
        in_budget=None if budget is None else sum(in_budget) / len(runs),
    )


def is_whole(result: StudyResult) -> bool:
    """Every trial came to its own end."""
    return not result.ends.get("stopped", 0)


def rung_outlooks(
    results: Sequence[StudyResult], rungs: Sequence[float]
) -> tuple[RungOutlook, ...]:
    """How many trials reported at each rung."""
    return tuple(
        RungOutlook(rung, Band(*quantiles([_come_to(result, rung) for result in results])))
        for rung in rungs
    )


def _come_to(result: StudyResult, rung: float) -> float:
    return sum(bool(trial.reports) and trial.reports[-1].epochs >= rung for trial in result.trials)


def pools(
    offers: Sequence[Offer], limits: Sequence[Limit], bounds: InstanceBounds, trials: int
) -> list[tuple[Offer, int]]:
    """The pools that are worth a look: of each kind of instance the cheapest, in rising sizes."""
    cheapest: dict[tuple[str, int, Purchase], Offer] = {}
    for offer in sorted(offers, key=lambda offer: (offer.usd_per_hour, offer.id)):
        if is_allowed(offer, bounds):
            cheapest.setdefault((offer.device_kind, offer.devices, offer.purchase), offer)
    return [
        (offer, size)
        for offer in cheapest.values()
        for size in _SIZES
        if size <= trials and all(each.use(offer) * size <= each.maximum for each in limits)
    ]


def is_allowed(offer: Offer, bounds: InstanceBounds) -> bool:
    """Whether a trial may train there."""
    if offer.purchase is Purchase.SPOT and not bounds.spot:
        return False
    named = bounds.offers is None or {offer.id, offer.instance_type} & set(bounds.offers)
    return bool(named) and bounds.most_of(offer) > 0


def best_pool(
    studies: Sequence[SimulatedStudy], candidates: Sequence[Pool], value_usd_per_hour: float
) -> PoolOutlook | None:
    """The best pool for all these draws of a study: the cheapest that keeps to its objective as
    often as that asks, else the quickest of those that do so most often; None if there is none.

    Without deadline and budget an hour counts `value_usd_per_hour`.
    """
    best: tuple[tuple[float, float], PoolOutlook] | None = None
    objective = studies[0].objective
    for pool in candidates:
        runs = [run_on_pool(study, pool, seed) for seed, study in enumerate(studies)]
        found = outlook(runs, objective, [True] * len(runs))
        misses = max(objective.confidence - found.chance, 0.0)
        hours = found.seconds.median / 3600.0
        hour_usd = 1e9 if misses else _hour_usd(objective, value_usd_per_hour)
        key = (misses, found.usd.median + hour_usd * hours)
        if best is None or key < best[0]:
            best = key, PoolOutlook(pool.offer.id, pool.size, found)
    return None if best is None else best[1]


def _hour_usd(objective: Objective, balanced_usd_per_hour: float) -> float:
    if objective.value_of_time_usd_per_hour is not None:
        return objective.value_of_time_usd_per_hour
    if objective.deadline_seconds is not None or objective.preference is Preference.CHEAPEST:
        return 0.0
    if objective.preference is Preference.FASTEST or objective.budget_usd is not None:
        return 1e9
    return balanced_usd_per_hour
