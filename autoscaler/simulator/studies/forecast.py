"""Forecasts of a study: many simulations as quantiles, next to pools of fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.offer import Limit, Offer, Purchase
from autoscaler.simulator.studies.drawn_trials import quantiles
from autoscaler.simulator.studies.results import StudyResult
from autoscaler.simulator.studies.static_pools import PoolRun, StaticPool, run_on_pool
from autoscaler.simulator.studies.study import SimulatedStudy

_SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128)


@dataclass(frozen=True, slots=True)
class Band:
    """Quantiles of the runs: 5 %, 50 % and 95 %."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """Cost and finish over all runs, and the share of runs that keep the objective.

    `in_time` is None without a deadline, `in_budget` without a budget. A run that was ended before
    all its trials had ended does not keep the objective.
    """

    usd: Band
    seconds: Band
    in_time: float | None
    in_budget: float | None

    @property
    def chance(self) -> float:
        """Smaller of `in_time` and `in_budget`; 1 without either."""
        return min(
            (chance for chance in (self.in_time, self.in_budget) if chance is not None), default=1
        )


@dataclass(frozen=True, slots=True)
class RungOutlook:
    """Number of trials that reach a rung, at `step` epochs; the last rung is the end."""

    step: float
    trials: Band


@dataclass(frozen=True, slots=True)
class PoolOutlook:
    """Forecast of `size` instances of an offer, held all the time."""

    offer: str
    size: int
    outlook: Outlook


def outlook(runs: Sequence[PoolRun], objective: Objective, are_whole: Sequence[bool]) -> Outlook:
    """Return the quantiles of runs; those that are not whole were ended early."""
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
    """Return whether every trial came to its own end."""
    return not result.ends.get("stopped", 0)


def rung_outlooks(
    results: Sequence[StudyResult], rungs: Sequence[float]
) -> tuple[RungOutlook, ...]:
    """Return the number of trials that reported at each rung."""
    return tuple(
        RungOutlook(rung, Band(*quantiles([_trials_reaching(result, rung) for result in results])))
        for rung in rungs
    )


def _trials_reaching(result: StudyResult, rung: float) -> float:
    return sum(bool(trial.reports) and trial.reports[-1].epochs >= rung for trial in result.trials)


def pools(
    offers: Sequence[Offer], limits: Sequence[Limit], bounds: InstanceBounds, trials: int
) -> list[tuple[Offer, int]]:
    """Return pools to consider: the cheapest offer of each kind of instance, in rising sizes."""
    cheapest: dict[tuple[str, int, Purchase], Offer] = {}
    for offer in sorted(offers, key=lambda offer: (offer.usd_per_hour, offer.id)):
        if is_allowed(offer, bounds):
            cheapest.setdefault((offer.device_kind, offer.devices, offer.purchase), offer)
    return [
        (offer, size)
        for offer in cheapest.values()
        for size in _SIZES
        if size <= trials and all(limit.use(offer) * size <= limit.maximum for limit in limits)
    ]


def is_allowed(offer: Offer, bounds: InstanceBounds) -> bool:
    """Return whether a trial may train on the offer."""
    return bounds.permits(offer) and bounds.most_of(offer) > 0


def best_pool(
    studies: Sequence[SimulatedStudy], candidates: Sequence[StaticPool], value_usd_per_hour: float
) -> PoolOutlook | None:
    """Return the best pool for all draws of a study; None if there are no candidates.

    It is the cheapest that keeps the objective with its confidence. If none does, it is the
    quickest of those that keep it most often. Without deadline and budget an hour costs
    `value_usd_per_hour`.
    """
    best: tuple[tuple[float, float], PoolOutlook] | None = None
    objective = studies[0].objective
    for pool in candidates:
        runs = [run_on_pool(study, pool, seed) for seed, study in enumerate(studies)]
        pool_outlook = outlook(runs, objective, [True] * len(runs))
        shortfall = max(objective.confidence - pool_outlook.chance, 0.0)
        hours = pool_outlook.seconds.median / 3600.0
        hour_usd = 1e9 if shortfall else _hour_usd(objective, value_usd_per_hour)
        key = (shortfall, pool_outlook.usd.median + hour_usd * hours)
        if best is None or key < best[0]:
            best = key, PoolOutlook(pool.offer.id, pool.size, pool_outlook)
    return None if best is None else best[1]


def _hour_usd(objective: Objective, balanced_usd_per_hour: float) -> float:
    if objective.value_of_time_usd_per_hour is not None:
        return objective.value_of_time_usd_per_hour
    if objective.deadline_seconds is not None or objective.preference is Preference.CHEAPEST:
        return 0.0
    if objective.preference is Preference.FASTEST or objective.budget_usd is not None:
        return 1e9
    return balanced_usd_per_hour
