"""Division of limits between a study and the ordinary jobs.

Bisection finds the number of the study's instances at which its gain equals the other jobs' loss.
An instance more is worth `StudyPlan.bid` to the study. A job without an allocation loses the cost
of its waiting; a job with a smaller one loses that fraction of it. A job that gives up instances
also loses the cost of `displacement`: a boot later, and a boot of a trial now. All are weighted,
in $ per second. Trials keep what they hold; jobs may lose what they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from autoscaler.domain.plan import Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.supply.supply import SECONDS_PER_HOUR, Supply
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.marginal.studies import StudyPart, StudyWork, plan_study, targets

# Figure of a decision: the job's saving by keeping its allocation.
KEEPING_FIGURE: Final = "keeping_usd_per_hour"


@dataclass(frozen=True, slots=True, eq=False)
class StudyMarket:
    """Surroundings in which a study is planned.

    Attributes:
        supply: offers and limits.
        taken: use of each limit by other studies, (R,).
        others: the ordinary jobs.
        rest: function of the studies' use of each limit, (R,), to the plan of the ordinary jobs.
        most_times: highest value of time, in prices of the largest allocation.
        fleet_jobs: number of ordinary jobs above which they are a fleet.
    """

    supply: Supply
    taken: FloatArray
    others: Sequence[JobSnapshot]
    rest: Callable[[FloatArray], Plan]
    most_times: float
    fleet_jobs: int

    def beside(self, part: StudyPart) -> Mapping[str, Decision]:
        """Return the decisions of the ordinary jobs beside the study's part, by job id."""
        used = self.supply.uses(targets([part]).values())
        return {decision.job: decision for decision in self.rest(self.taken + used).decisions}


def contested(work: StudyWork, market: StudyMarket) -> StudyPart:
    """Return the study's part: all it wants if the other jobs lose no more by it, else less.

    Beside a fleet the study gets the limits that the jobs leave at present: replanning a fleet
    takes too long.
    """
    supply, taken, most_times = market.supply, market.taken, market.most_times
    if len(market.others) > market.fleet_jobs:
        taken = taken + supply.uses(job.held for job in market.others)
    full_part = plan_study(work, supply, taken, most_times)
    is_alone = not market.others or not supply.limits
    if is_alone or len(market.others) > market.fleet_jobs or full_part.plan is None:
        return full_part
    least = sum(job.held.instances for job in work.jobs if job.held is not None)
    best = first = plan_study(work, supply, taken, most_times, least)
    without_study, part, most = market.beside(first), full_part, _instances(full_part) + 1
    while most - least > 1:
        count = _instances(part)
        if _gain(work, part, first) >= _loss(market, part, without_study):
            least, best = max(count, least + 1), part
        else:
            most = min(count, most - 1)
        part = plan_study(work, supply, taken, most_times, (least + most) // 2)
    return best


def _gain(work: StudyWork, part: StudyPart, first: StudyPart) -> float:
    """Return the study's weighted gain from instances beyond its first ones, $ per second."""
    weight = float(np.mean([job.weight for job in work.jobs]))
    bid = 0.0 if part.plan is None else part.plan.bid
    return weight * bid * max(_instances(part) - _instances(first), 0)


def _loss(market: StudyMarket, part: StudyPart, without: Mapping[str, Decision]) -> float:
    """Return the other jobs' weighted loss beside the study, $ per second."""
    loss_usd_per_second = 0.0
    for job, decision in market.beside(part).items():
        devices_without, devices_beside = _devices(without[job]), _devices(decision)
        if devices_beside < devices_without:
            figures = without[job].figures
            bid = figures.get("bid_usd_per_hour", 0.0) * (1.0 - devices_beside / devices_without)
            given_up = _given_up(without[job], decision)
            bid += figures.get(KEEPING_FIGURE, 0.0) * given_up
            loss_usd_per_second += figures.get("weight", 1.0) * bid / SECONDS_PER_HOUR
    return loss_usd_per_second


def _given_up(without: Decision, beside: Decision) -> float:
    """Return the fraction of its held devices that a job keeps only without the study."""
    held = without.current
    if held is None or without.target is None or without.target.offer != held.offer:
        return 0.0
    stays = (
        0 if beside.target is None or beside.target.offer != held.offer else beside.target.devices
    )
    return max(min(without.target.devices, held.devices) - stays, 0) / held.devices


def _devices(decision: Decision) -> int:
    """Return the devices of the decision's target."""
    return 0 if decision.target is None else decision.target.devices


def _instances(part: StudyPart) -> int:
    """Return the instances of all of the study's targets."""
    return sum(target.instances for target in targets([part]).values() if target is not None)
