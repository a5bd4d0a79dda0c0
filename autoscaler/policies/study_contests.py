"""A study against the ordinary jobs, where limits do not bear what both want.

How many instances the study may hold in all is looked for by halving: as many as are worth to it
what the others lose by them. To the study an instance more is worth its part of what its time is
worth (`StudyPlan.bid`). A job that goes without anything loses what its waiting costs, and one
that gets less that share of it. A job that loses what it holds also loses what `displacing` says:
a boot of its own later, and one of the trial now. All count by their weights, in $ a second. What
trials hold is not taken from a study; what jobs hold may be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from autoscaler.domain.plan import Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.supply import FLEET_JOBS, SECONDS_PER_HOUR, Supply
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.marginal_studies import StudyPart, StudyWork, plan_study, targets

# Figure of a decision: what its job saves by keeping what it holds.
KEEPING_FIGURE: Final = "keeping_usd_per_hour"


@dataclass(frozen=True, slots=True, eq=False)
class StudyMarket:
    """What a study is planned beside.

    Attributes:
        supply: what is offered.
        taken: what other studies use of each limit, (R,).
        others: the ordinary jobs.
        rest: their plan, where studies use so much of each limit.
        most_times: the highest value of time, in prices of the largest allocation.
    """

    supply: Supply
    taken: FloatArray
    others: Sequence[JobSnapshot]
    rest: Callable[[FloatArray], Plan]
    most_times: float

    def beside(self, part: StudyPart) -> Mapping[str, Decision]:
        """What is decided for the ordinary jobs then, by job."""
        used = self.supply.uses(targets([part]).values())
        return {one.job: one for one in self.rest(self.taken + used).decisions}


def contested(work: StudyWork, market: StudyMarket) -> StudyPart:
    """The study's part: all that it wants where the others do not lose more by it.

    Beside a fleet it has what the others leave now: their plan is too long to be made again.
    """
    supply, taken, most_times = market.supply, market.taken, market.most_times
    if len(market.others) > FLEET_JOBS:
        taken = taken + supply.uses(job.held for job in market.others)
    wanted = plan_study(work, supply, taken, most_times)
    is_alone = not market.others or not supply.limits
    if is_alone or len(market.others) > FLEET_JOBS or wanted.plan is None:
        return wanted
    least = sum(job.held.instances for job in work.jobs if job.held is not None)
    best = first = plan_study(work, supply, taken, most_times, least)
    without, part, most = market.beside(first), wanted, _instances(wanted) + 1
    while most - least > 1:
        count = _instances(part)
        if _gain(work, part, first) >= _loss(market, part, without):
            least, best = max(count, least + 1), part
        else:
            most = min(count, most - 1)
        part = plan_study(work, supply, taken, most_times, (least + most) // 2)
    return best


def _gain(work: StudyWork, part: StudyPart, first: StudyPart) -> float:
    """What the instances beyond the first are worth to the study, $ a second."""
    weight = float(np.mean([job.weight for job in work.jobs]))
    bid = 0.0 if part.plan is None else part.plan.bid
    return weight * bid * max(_instances(part) - _instances(first), 0)


def _loss(market: StudyMarket, part: StudyPart, without: Mapping[str, Decision]) -> float:
    """What the others lose by them, $ a second."""
    lost = 0.0
    for job, then in market.beside(part).items():
        had, has = _devices(without[job]), _devices(then)
        if has < had:
            figures = without[job].figures
            bid = figures.get("bid_usd_per_hour", 0.0) * (1.0 - has / had)
            given_up = _given_up(without[job], then)
            bid += figures.get(KEEPING_FIGURE, 0.0) * given_up
            lost += figures.get("weight", 1.0) * bid / SECONDS_PER_HOUR
    return lost


def _given_up(without: Decision, then: Decision) -> float:
    """Return the share of what a job holds that it keeps without the study and not beside it."""
    held = without.current
    if held is None or without.target is None or without.target.offer != held.offer:
        return 0.0
    stays = 0 if then.target is None or then.target.offer != held.offer else then.target.devices
    return max(min(without.target.devices, held.devices) - stays, 0) / held.devices


def _devices(decision: Decision) -> int:
    return 0 if decision.target is None else decision.target.devices


def _instances(part: StudyPart) -> int:
    return sum(one.instances for one in targets([part]).values() if one is not None)
